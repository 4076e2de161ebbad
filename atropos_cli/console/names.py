"""File names made from names of models and environments: safe on every system, and never shared by two names."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from pathlib import Path

LIMIT = 80
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)", re.IGNORECASE)
_MARKED = re.compile(r"-[0-9a-f]{10}$")


def safe_name(name: str, limit: int = LIMIT) -> str:
    """A file name for a name.

    Lower-case letters, digits, "-", "_" and inner dots stand for themselves. Whatever must be changed
    (/ \\ : * ? " < > |, names reserved on Windows, a final dot, too long) is followed by a hash of the
    true name, so two names never share a file. Upper case is kept, yet gets the hash too: some file
    systems do not tell it from lower case.
    """
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")
    changed = (
        not cleaned
        or cleaned != name
        or cleaned != cleaned.lower()
        or len(cleaned) > limit
        or _RESERVED.match(cleaned) is not None
        or _MARKED.search(cleaned) is not None
    )
    if not changed:
        return cleaned
    mark = "-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    if _RESERVED.match(cleaned):
        cleaned = f"_{cleaned}"
    return (cleaned[: limit - len(mark)].rstrip("._-") or "run") + mark


def default_run_folder(name: str, now: datetime | None = None) -> Path:
    """runs/<name>-<date>-<time>, with a number behind it when that is there already."""
    stamp = (now or datetime.now()).strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{safe_name(name)}-{stamp}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder
