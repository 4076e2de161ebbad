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
    An answer that cannot be kept, or that ask() ends with an exception, is asked for again next time.
    """
    name = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()[:24]
    file = user_cache() / kind / f"{name}.json"
    try:
        kept: Any = json.loads(file.read_bytes())
    except (OSError, ValueError):
        kept = None
    if isinstance(kept, dict):
        return kept
    answer = ask()
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file, sync=False) as out:
            out.write(json.dumps(answer).encode())
    return answer


def stamp(file: Path) -> tuple[str, int, int]:
    """Changes with the file: its path, time of change in nanoseconds and size in bytes; zeros where there is none."""
    try:
        found = file.stat()
    except OSError:
        return (str(file), 0, 0)
    return (str(file), found.st_mtime_ns, found.st_size)


def environment_file(python: str) -> Path:
    """The file that says when a virtual environment was made: other packages may be in it since."""
    return Path(python).parent.parent / "pyvenv.cfg"
