"""Checkpoint folders `checkpoints/step-N`: complete or absent, and the last good one always stays.

A checkpoint is written into `checkpoints/.writing-step-N`, forced to disk and renamed. Only afterwards are
older ones removed, so a failed save never costs an earlier one. There is no "latest" pointer: the newest
is the one with the highest N.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from atropos_cli.sdk import DataError, TrainerError

from .machine import free_disk, human

_NAME = re.compile(r"step-(\d+)")
_WRITING = ".writing-"


def checkpoints(run: Path) -> list[tuple[int, Path]]:
    """(step, folder) of every complete checkpoint of a run folder, oldest first."""
    root = run / "checkpoints"
    found = []
    for folder in root.iterdir() if root.is_dir() else ():
        match = _NAME.fullmatch(folder.name)
        if match and folder.is_dir():
            found.append((int(match[1]), folder))
    return sorted(found)


def newest(run: Path) -> tuple[int, Path]:
    """The newest complete checkpoint. Raises DataError when there is none: a resumed run never starts over silently."""
    found = checkpoints(run)
    if not found:
        raise DataError(
            f"there is no complete checkpoint below {run / 'checkpoints'}: nothing to resume from",
            hint="start the run anew with --overwrite, or name the folder of a run that has saved one",
        )
    return found[-1]


def save(run: Path, step: int, write: Callable[[Path], None], *, needed: int | None = None) -> Path:
    """Have `write` fill a folder and put it in place as `checkpoints/step-N`. Returns the folder.

    needed: bytes it will take, when known; checked before anything is written.
    Raises TrainerError (with path and size) when the disk does not take it; older checkpoints are untouched.
    """
    root = run / "checkpoints"
    final, writing = root / f"step-{step}", root / f"{_WRITING}step-{step}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        for leaving in root.glob(f"{_WRITING}*"):
            shutil.rmtree(leaving)
        free = free_disk(root)
        if needed is not None and free < needed:
            raise OSError(f"only {human(free)} are free")
        writing.mkdir()
        write(writing)
        _force_to_disk(writing)
        if final.exists():  # a step saved once more: the old one goes only now, by a rename, in case it is half gone
            replaced = root / f"{_WRITING}old-step-{step}"
            final.rename(replaced)
            writing.rename(final)
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            writing.rename(final)
    except Exception as error:
        # safetensors and torch report a full disk by exceptions of their own
        if not isinstance(error, OSError) and not _about_disk(error):
            raise
        size = f" (about {human(needed)})" if needed is not None else ""
        shutil.rmtree(writing, ignore_errors=True)
        kept = checkpoints(run)
        stays = f"; {kept[-1][1].name} is kept" if kept else ""
        raise TrainerError(
            f"the checkpoint {final}{size} cannot be written: {error}{stays}",
            hint="make room there, then go on with --resume",
        ) from error
    return final


def prune(run: Path, *, keep: int, best: int | None) -> None:
    """Remove all but the newest `keep` checkpoints and that of step `best`."""
    found = checkpoints(run)
    for step, folder in found[:-keep] if keep < len(found) else ():
        if step != best:
            gone = folder.with_name(f"{_WRITING}old-{folder.name}")
            with contextlib.suppress(OSError):
                folder.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)


def _about_disk(error: Exception) -> bool:
    text = f"{type(error).__name__} {error}"
    return any(word in text for word in ("No space", "os error", "I/O error", "PytorchStreamWriter", "SafetensorError"))


def _force_to_disk(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() or path.is_dir():
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
