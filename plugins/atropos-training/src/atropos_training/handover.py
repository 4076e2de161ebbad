"""The weights of a training on the way to the servers that sample: folders in RUN/sync that they can read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

SYNC = "sync"


def place_of(sync: Path, step: int) -> Path:
    """The folder of a step's weights; two in turn, since a server may still be reading the last one."""
    return sync / str(step % 2)


def leave(folder: Path, model: Any, tokenizer: Any) -> None:
    """Write the weights, in the place of older ones."""
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
