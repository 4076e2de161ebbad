"""Checkpoint folders `checkpoints/step-N`: complete or absent, and the last good one always stays.

A checkpoint is written into `checkpoints/.writing-step-N`, forced to disk and renamed. Only afterwards are
older ones removed, so a failed save never costs an earlier one. There is no "latest" pointer: the newest
is the one with the highest N.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk import DataError
from atropos_cli.sdk.training import TrainerError

from .machine import free_disk, human

_NAME = re.compile(r"step-(\d+)")
_WRITING = ".writing-"
_EVALUATED = "evaluated"
"""An empty file in a checkpoint: the evaluation that was due at its step is done."""


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


def resumable(run: Path, needed: Sequence[str]) -> tuple[int, Path]:
    """The newest checkpoint, to go on from. needed: patterns of what must be in it beside the weights.

    Raises DataError when there is none, or when it lacks something or is cut off.
    """
    step, folder = newest(run)
    wrong = _damage(folder, needed if step else ())  # before the first step there is nothing but weights
    if wrong is not None:
        older = [path.name for at, path in checkpoints(run) if at < step]
        then = f"then --resume goes on from {older[-1]}" if older else "there is no older one: start with --overwrite"
        raise DataError(f"checkpoint {folder} is damaged: {wrong}", hint=f"remove {folder}; {then}")
    return step, folder


def note_evaluated(run: Path, step: int) -> None:
    """The evaluation of this step is done: a run that goes on from its checkpoint need not make it."""
    folder = run / "checkpoints" / f"step-{step}"
    if folder.is_dir():
        with contextlib.suppress(OSError):
            (folder / _EVALUATED).touch()


def is_evaluated(folder: Path) -> bool:
    """See note_evaluated."""
    return (folder / _EVALUATED).exists()


def save_start(run: Path, model: Any, tokenizer: Any, *, evaluated: bool) -> Path:
    """`step-0` for a run that is stopped before its first step: the weights alone. It goes on from its beginning."""

    def write(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if evaluated:
            (folder / _EVALUATED).touch()

    return save(run, 0, write)


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


def _damage(folder: Path, needed: Sequence[str]) -> str | None:
    """What is missing or cut off in a checkpoint; None: nothing that can be seen without loading it."""
    weights = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin"), *folder.glob("adapter_model.bin")]
    if not weights:
        return "it has no weights (model.safetensors or adapter_model.safetensors)"
    for index in folder.glob("*.index.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, AttributeError):
            for name in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())):
                if not (folder / name).is_file():
                    return f"{name} is missing"
    for pattern in needed:
        if not any(folder.glob(pattern)):
            return f"{pattern.replace('*', '')} is missing"
    for path in weights:
        if path.suffix == ".safetensors" and not _whole_safetensors(path):
            return f"{path.name} is cut off"
    for path in (*folder.glob("*.pt"), *folder.glob("*.pth")):
        if not zipfile.is_zipfile(path):
            return f"{path.name} is cut off"
    return None


def _whole_safetensors(path: Path) -> bool:
    """Is the file as long as its header says?"""
    try:
        size = path.stat().st_size
        with path.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if length > size:
                return False
            header = json.loads(handle.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        return size >= 8 + length + max(ends, default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return False


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
