"""Rows that record only whether each rollout passed: {task_id, passed: [true, false, ...]}, or scores alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atropos_cli.io.formats.common import Format, expect_list, new_record, read_score, side_fields
from atropos_cli.io.records import Record, Row, StoredRollout

_KEYS = ("passed", "scores", "rewards")
_STRUCTURE = frozenset(_KEYS)


def matches(raw: Row) -> bool:
    return _key(raw) is not None


def read(raw: Row, source: str, line: int) -> Record:
    """A Record whose rollouts have a score (1.0 and 0.0 for true and false) and no messages. Raises RowError."""
    key = _key(raw) or _KEYS[0]
    record = new_record(raw, "outcomes", source, line)
    record.info = side_fields(raw, _STRUCTURE)
    for i, value in enumerate(expect_list(raw.get(key), key)):
        score, odd = read_score(value, f"{key}[{i}]")
        if odd:
            record.non_finite.append(i)
        record.rollouts.append(StoredRollout(messages=[], score=score, raw=raw, index=i))
    record.cut = _cut
    return record


def _key(raw: Row) -> str | None:
    return next((key for key in _KEYS if isinstance(raw.get(key), list)), None)


def _cut(record: Record, kept: Sequence[StoredRollout]) -> list[Row]:
    count = len(record.rollouts)
    row: dict[str, Any] = {}
    for key, value in record.raw.items():
        parallel = isinstance(value, list) and len(value) == count and key in _STRUCTURE
        row[key] = [value[rollout.index] for rollout in kept] if parallel else value
    return [row]


FORMAT = Format("outcomes", True, matches, read, "outcomes without texts: {task_id, passed: [true, false]}")
