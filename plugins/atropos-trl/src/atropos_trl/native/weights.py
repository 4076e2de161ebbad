"""Model, adapters, optimiser and random state: loaded, saved, restored, published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atropos_trl.common import models

from .config import NativeConfig

_STATE = "native.pt"
NEEDED = (_STATE,)
"""Without it a checkpoint is no more than weights."""


def load(name: str, config: NativeConfig, start: Path | None, *, again: bool = False) -> tuple[Any, Any]:
    """(model, tokenizer), from a checkpoint's folder when there is one; LoRA adapters are on the base model.

    again: compute activations again in the backward pass, where the user did not decide it.
    """
    tokenizer = models.load_tokenizer(name)
    model = models.load_model(name if start is None or config.lora_r else str(start))
    if config.lora_r:
        from peft import PeftModel, get_peft_model

        from atropos_trl.common.lora import lora_config

        if start is None:
            alpha, dropout, modules = config.lora_alpha, config.lora_dropout, config.lora_target_modules
            wanted = lora_config(r=config.lora_r, alpha=alpha, dropout=dropout, target_modules=modules, model=model)
            model = get_peft_model(model, wanted)
        else:
            model = PeftModel.from_pretrained(model, str(start), is_trainable=True)
    if again if config.gradient_checkpointing is None else config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if config.lora_r:
            model.enable_input_require_grads()
    return model.train(), tokenizer


def write(folder: Path, model: Any, tokenizer: Any, optimizer: Any, counts: dict[str, int]) -> None:
    """Fill a checkpoint's folder: what transformers loads (adapters: with peft), and what a resumed run needs."""
    import torch

    with models.quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    random = {"cpu": torch.get_rng_state(), "cuda": cuda}
    torch.save({"counts": counts, "random": random, "optimizer": optimizer.state_dict()}, folder / _STATE)


def restore(start: Path, optimizer: Any) -> dict[str, int]:
    """Put optimiser and random state back; returns the counts."""
    import torch

    state = torch.load(start / _STATE, map_location="cpu", weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"]["cpu"])
    for number, saved in enumerate(state["random"]["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(saved, number)
    counts: dict[str, int] = state["counts"]
    return counts
