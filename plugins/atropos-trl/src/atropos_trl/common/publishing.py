"""The final weights as a folder that transformers loads."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from atropos_cli.sdk.training import TrainerError

from .models import quiet

_STEP = "training_step.json"


def published_step(folder: Path) -> int | None:
    """The step whose weights a published folder holds; None where there is none, or it does not say."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((folder / _STEP).read_text(encoding="utf-8"))["step"])
    return None


def publish(folder: Path, model: Any, tokenizer: Any, *, step: int) -> Path:
    """Write model and tokenizer beside the folder, and rename; LoRA is merged in, its adapter kept in `adapter`.

    Raises TrainerError when they cannot be written.
    """
    writing = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(writing, ignore_errors=True)
    try:
        with quiet():
            if hasattr(model, "merge_and_unload"):
                model.save_pretrained(str(folder.with_name("adapter")))
                model = model.merge_and_unload()
            model.save_pretrained(str(writing))
            tokenizer.save_pretrained(str(writing))
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
