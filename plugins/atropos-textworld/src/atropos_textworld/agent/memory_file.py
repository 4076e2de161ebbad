"""Memories that outlive their episode: one JSON line each in a file that many episodes and processes share.

The file is replaced as a whole, under a lock, and holds at most a given number of memories: the newest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from atropos_cli.sdk import DataError
from atropos_cli.sdk.data import file_lock, replacing


@dataclass(frozen=True, slots=True)
class Note:
    """One memory. importance None: nothing was said about it."""

    text: str
    episode: str
    turn: int
    importance: float | None = None


def read_notes(path: Path) -> list[Note]:
    """The notes of a file, oldest first; none when there is no file. Raises DataError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the memory file {path} cannot be read: {error}", hint="give another --memory-file") from error
    return [_parse(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def add_notes(path: Path, notes: Iterable[Note], most: int) -> None:
    """Add notes to a file and keep the `most` newest. A text that is there already moves to the end.

    Raises DataError.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path.with_name(path.name + ".lock")):
            newest = {note.text: note for note in read_notes(path)}
            for note in notes:
                newest.pop(note.text, None)
                newest[note.text] = note
            _replace(path, list(newest.values())[-most:])
    except OSError as error:
        raise DataError(
            f"the memory file {path} cannot be written: {error.strerror}", hint="give another --memory-file"
        ) from error


def _replace(path: Path, notes: Iterable[Note]) -> None:
    with replacing(path, mode=0o600) as file:
        file.writelines(json.dumps(asdict(note), ensure_ascii=True).encode() + b"\n" for note in notes)


def _parse(line: str, path: Path, number: int) -> Note:
    try:
        data = json.loads(line)
        importance = data["importance"]
        note = Note(data["text"], data["episode"], data["turn"], None if importance is None else float(importance))
        if isinstance(note.text, str) and isinstance(note.episode, str) and isinstance(note.turn, int):
            return note
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise DataError(
        f"{path}:{number}: not a memory: {line[:80]!r}", hint="remove the line, or give another --memory-file"
    )
