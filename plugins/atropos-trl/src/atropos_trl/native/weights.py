"""Model, adapters, optimiser and random state: loaded, saved, restored, published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_trl.common import models

from .config import NativeConfig

if TYPE_CHECKING:
    from .policy import Policy

_STATE = "native.pt"
NEEDED = (_STATE,)
"""Without it a checkpoint is no more than weights."""


def load(
    name: str, config: NativeConfig, start: Path | None, *, again: bool = False, half: Any = None, device: Any = None
) -> tuple[Any, Any]:
    """(model, tokenizer), from a checkpoint's folder when there is one; LoRA adapters are on the base model.

    again: compute activations again in the backward pass, where the user did not decide it. half: what weights that
    are not trained are in, None for fp32. device: where a model of 4 bits is made.
    """
    tokenizer = models.load_tokenizer(name)
    bits = models.four_bits(half) if config.lora_4bit and device is not None else None
    model = models.load_model(name if start is None or config.lora_r else str(start), bits=bits, device=device)
    if config.lora_r:
        from peft import PeftModel, get_peft_model

        from atropos_trl.common.lora import lora_config

        if start is None:
            alpha, dropout, modules = config.lora_alpha, config.lora_dropout, config.lora_target_modules
            wanted = lora_config(r=config.lora_r, alpha=alpha, dropout=dropout, target_modules=modules, model=model)
            model = get_peft_model(model, wanted)
        else:
            model = PeftModel.from_pretrained(model, str(start), is_trainable=True)
        for parameter in model.parameters() if half is not None and bits is None else ():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(half)
    if again if config.gradient_checkpointing is None else config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if config.lora_r:
            model.enable_input_require_grads()
    return model.train(), tokenizer


class Snapshot:
    """The state of a run after a step, whole in the first process. Made by all processes together."""

    def __init__(self, policy: Policy, counts: dict[str, int]) -> None:
        import torch

        cuda = torch.cuda.get_rng_state(policy.place.device) if policy.place.device.type == "cuda" else None
        self._policy = policy
        self._weights = policy.weights()
        self._state = {
            "counts": counts,
            "random": policy.place.crew.gather((torch.get_rng_state(), cuda)),
            "optimizer": policy.optimizer_state(),
            "scale": policy.scale.state(),
        }

    def write(self, folder: Path, tokenizer: Any) -> None:
        """Fill a checkpoint's folder: what transformers loads (adapters: with peft), and what a resumed run needs."""
        import torch

        given = {} if self._weights is None else {"state_dict": self._weights}
        with models.quiet():
            self._policy.model.save_pretrained(folder, **given)
            tokenizer.save_pretrained(folder)
        torch.save(self._state, folder / _STATE)


def restore(start: Path, policy: Policy, seed: int) -> dict[str, int]:
    """Put optimiser, loss scale and random state back; returns the counts.

    A process beyond those that saved draws from a seed of its own.
    """
    import torch

    state = torch.load(start / _STATE, map_location="cpu", weights_only=True)
    policy.load_optimizer(state["optimizer"])
    policy.scale.load(state["scale"])
    counts: dict[str, int] = state["counts"]
    place = policy.place
    if place.crew.rank < len(state["random"]):
        random, cuda = state["random"][place.crew.rank]
        torch.set_rng_state(random)
        if cuda is not None and place.device.type == "cuda":
            torch.cuda.set_rng_state(cuda, place.device)
    else:
        torch.manual_seed(seed + counts["step"] * place.crew.size + place.crew.rank)
    return counts
