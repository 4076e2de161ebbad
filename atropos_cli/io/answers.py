"""Answers of programs that take long to ask, kept in the user's cache while nothing that they come from changes."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atropos_cli.paths import replacing, user_cache


def kept_answer(kind: str, key: object, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer to a question, asked where it is not known.

    kind: the folder of the cache. key: all that the answer depends on, as JSON takes it (str() of anything else).
    An answer that cannot be kept, that was damaged, or that ask() ends with an exception, is asked for again next time.
    """
    name = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:24]
    try:
        file = user_cache() / kind / f"{name}.json"
    except RuntimeError:  # no home
        return ask()
    if (kept := _read(file)) is not None:
        return kept
    answer = ask()
    text = json.dumps(answer).encode()
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, sync=False) as out:
            out.write(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    return answer


def _read(file: Path) -> dict[str, Any] | None:
    """A kept answer; None where there is none, or where it is damaged: callers rely on its contents."""
    try:
        digest, _, text = file.read_bytes().partition(b"\n")
        found: Any = json.loads(text) if hashlib.sha256(text).hexdigest().encode() == digest else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def stamp(file: Path) -> tuple[str, int, int]:
    """Changes with the file: its path, time of change in nanoseconds and size in bytes; zeros where there is none."""
    try:
        found = file.stat()
    except OSError:
        return (str(file), 0, 0)
    return (str(file), found.st_mtime_ns, found.st_size)


def environment_stamps(python: str) -> list[tuple[str, int, int]]:
    """Change when the Python is another, and when packages are installed, upgraded or removed there.

    An editable package whose code changes is not seen.
    """
    root = Path(python).parent.parent
    folders = sorted(root.glob("lib*/python3*/*-packages"))
    return [stamp(Path(python)), stamp(root / "pyvenv.cfg"), *map(stamp, folders)]
