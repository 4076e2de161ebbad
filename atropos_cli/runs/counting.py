"""How far a run is, from the ends of its files: bounded reading, whatever their size."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from atropos_cli.io.index import records_in
from atropos_cli.io.jsonvalue import NotJson, open_file, parse

_COUNTED = 4 << 20
"""Bytes of a groups file whose tasks are counted; of a larger one the index of offsets tells."""

_END = 1 << 16
_LAST = b'"last":true'


def count_groups(folder: Path, summary_at: float | None) -> int:
    """Tasks in the groups file that were written after the summary; 0 when the summary tells them all.

    summary_at: when the summary was written, in seconds since the epoch.
    """
    path = folder / "groups.jsonl"
    with contextlib.suppress(OSError):
        status = path.stat()
        if summary_at is not None and status.st_mtime <= summary_at:
            return 0
        if status.st_size > _COUNTED:
            return records_in(folder / "groups.jsonl.idx")
        with open_file(path) as file:
            return sum(1 for line in file if line.endswith(b"\n") and _LAST in line[:200])
    return 0


Ends = dict[str, tuple[Any, Any]]
"""By metric: a value, and the line it comes from (its step and kind)."""


def metric_ends(folder: Path) -> tuple[Ends, Ends]:
    """(the first value of each metric of a training run, the last one), from both ends of metrics.jsonl."""
    with contextlib.suppress(OSError), open_file(folder / "metrics.jsonl") as file:
        head = file.read(_END)
        size = file.seek(0, 2)
        tail = head
        if size > _END:
            file.seek(-_END, 2)
            tail = file.read(_END).partition(b"\n")[2]
        first: Ends = {}
        for row in _rows(head):
            first = row | first
        last: Ends = {}
        for row in _rows(tail):
            last |= row
        return first, last
    return {}, {}


def _rows(text: bytes) -> list[Ends]:
    found = []
    for line in text.splitlines():
        with contextlib.suppress(NotJson):
            value, _ = parse(line)
            if isinstance(value, dict):
                place = (value.get("step"), value.get("kind"))
                found.append({str(name): (item, place) for name, item in value.items() if item is not None})
    return found
