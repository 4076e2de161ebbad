"""The final weights as a folder that transformers loads."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atropos_cli.sdk.training import TrainerError

from .machine import free_memory, human
from .models import quiet

_STEP = "training_step.json"
_TOKENS = 12
_TOLERANCE = 0.1
"""Of log-probabilities: devices and number formats differ by less, another model by much more."""


def published_step(folder: Path) -> int | None:
    """The step whose weights a published folder holds; None where there is none, or it does not say."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((folder / _STEP).read_text(encoding="utf-8"))["step"])
    return None


def publish(
    folder: Path, model: Any, tokenizer: Any, *, step: int, warn: Callable[[str], None] = lambda text: None
) -> Path:
    """Write model and tokenizer beside the folder, and rename; LoRA is merged in, its adapter kept in `adapter`.

    The written files are loaded and compared with the trained model first. Raises TrainerError when they cannot be
    written, or hold another model.
    """
    expected = _answers(model)
    writing = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(writing, ignore_errors=True)
    try:
        with quiet():
            if hasattr(model, "merge_and_unload"):
                model.save_pretrained(str(folder.with_name("adapter")))
                untie(model)
                model = model.merge_and_unload()
            model.save_pretrained(str(writing))
            tokenizer.save_pretrained(str(writing))
        _compare(writing, model, expected, warn)
        (writing / _STEP).write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        writing.rename(folder)
    except OSError as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise TrainerError(
            f"the final weights cannot be written to {folder}: {error}",
            hint="make room there, then go on with --resume",
        ) from error
    return folder


def untie(model: Any) -> None:
    """Give embedding and output of a PEFT model weights of their own where an adapter belongs to one of them alone.

    Merged into weights that both share, it would change the other one too.
    """
    import torch

    base = model.get_base_model()
    ends = (base.get_input_embeddings(), base.get_output_embeddings())
    if None in ends:
        return
    first, last = (getattr(end, "base_layer", end) for end in ends)
    if first.weight is not last.weight or all(end is own for end, own in zip(ends, (first, last), strict=True)):
        return
    last.weight = torch.nn.Parameter(last.weight.detach().clone())
    for config in {id(found): found for found in (base.config, base.config.get_text_config())}.values():
        config.tie_word_embeddings = False


def _answers(model: Any) -> Any:
    """The log-probabilities of some fixed tokens, or a reward model's numbers for them, on the CPU."""
    import torch

    size = int(model.get_input_embeddings().weight.shape[0])
    places = torch.arange(2 * _TOKENS).reshape(2, _TOKENS)
    ids = (places * 7919 + 13) % size
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            logits = model(input_ids=ids.to(next(model.parameters()).device)).logits
        numbers = logits.float().cpu()
        return numbers if _is_reward_model(model) else torch.log_softmax(numbers, dim=-1)
    finally:
        model.train(training)


def _is_reward_model(model: Any) -> bool:
    return getattr(model.config, "num_labels", None) == 1


def _compare(writing: Path, model: Any, expected: Any, warn: Callable[[str], None]) -> None:
    """Does the folder hold the trained model? Raises TrainerError."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    kind, what = AutoModelForCausalLM, "log-probabilities"
    if _is_reward_model(model):
        kind, what = AutoModelForSequenceClassification, "rewards"
    needed = sum(p.numel() for p in model.parameters()) * 4
    free = free_memory()
    if free is not None and needed > free:
        warn(
            f"the saved model was not loaded and compared: {human(needed)} of memory are needed, {human(free)} are free"
        )
        return
    try:
        import torch

        loaded = kind.from_pretrained(str(writing), dtype=torch.float32, local_files_only=True)
        difference = float((_answers(loaded) - expected).abs().max())
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise TrainerError(
            f"the saved model cannot be loaded again: {str(error).splitlines()[0]}", hint="try again with --resume"
        ) from error
    if not difference <= _TOLERANCE:
        raise TrainerError(
            f"the saved model in {writing} is not the trained one: {what} differ by up to {difference:.3g}",
            hint="the trained weights are in checkpoints/; please report it",
        )
