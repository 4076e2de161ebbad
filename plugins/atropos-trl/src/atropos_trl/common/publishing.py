"""The final weights as a folder that transformers loads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from atropos_cli.sdk import TrainerError

from .models import quiet


def publish(folder: Path, model: Any, tokenizer: Any) -> Path:
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
        shutil.rmtree(folder, ignore_errors=True)
        writing.rename(folder)
    except OSError as error:
        shutil.rmtree(writing, ignore_errors=True)
        raise TrainerError(
            f"the final weights cannot be written to {folder}: {error}",
            hint="make room there, then go on with --resume",
        ) from error
    return folder
