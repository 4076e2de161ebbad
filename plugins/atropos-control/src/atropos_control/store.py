"""Checkpoints of policies: `checkpoints/step-N`, whole or absent, and the final one in `model`.

One is written beside its place, forced to disk and renamed. Older ones are removed afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from atropos_cli.sdk import DataError
from atropos_cli.sdk.records import checkpoints
from atropos_cli.sdk.training import TrainerError

EVALUATED = "evaluated"
"""An empty file in a checkpoint: the evaluation that was due at its step is done."""


def newest(run: Path) -> Path:
    """The newest checkpoint of a run. Raises DataError."""
    names = checkpoints(run)
    if not names:
        raise DataError(f"{run} has no checkpoint to resume from", hint="--overwrite replaces the run")
    return run / "checkpoints" / names[-1]


def save(place: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a folder and put it in its place. Raises TrainerError when the disk does not take it."""
    writing = place.with_name(f".writing-{place.name}")
    try:
        for left in place.parent.glob(".writing-*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        writing.mkdir(parents=True)
        write(writing)
        for path in (*writing.iterdir(), writing):
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
        if place.exists():
            old = place.with_name(f".writing-old-{place.name}")
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
            writing.rename(place)
            shutil.rmtree(old, ignore_errors=True)
        else:
            writing.rename(place)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        shutil.rmtree(writing, ignore_errors=True)
        raise TrainerError(f"{place} cannot be written: {error}", hint="make room there, then --resume") from error


def prune(run: Path, *, keep: int, best: str | None) -> None:
    """Remove all but the newest checkpoints and the best one."""
    for name in checkpoints(run)[:-keep]:
        if name != best:
            gone = run / "checkpoints" / f".writing-old-{name}"
            with contextlib.suppress(OSError):
                (run / "checkpoints" / name).rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
