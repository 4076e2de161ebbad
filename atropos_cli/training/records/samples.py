"""samples.jsonl: some completions of a step in readable form, with their rewards."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.ports.tracker import SAMPLE_COLUMNS
from atropos_cli.training.records.steplog import StepLog, read_steps

T = TypeVar("T")

FILE = "samples.jsonl"
COLUMNS = SAMPLE_COLUMNS
PER_STEP = 8
MOST_CHARACTERS = 4000


class Samples:
    """Appends to a run folder's samples.jsonl, at most `per_step` rows a call and `characters` a text."""

    def __init__(self, folder: Path, *, per_step: int = PER_STEP, characters: int = MOST_CHARACTERS) -> None:
        self._log = StepLog(folder / FILE)
        self._per_step = per_step
        self._characters = characters

    def write(self, step: int, rows: Sequence[Mapping[str, Any]], *, suite: str | None = None) -> list[JsonDict]:
        """Record rows evenly taken from those given; returns them as written. suite: of an evaluation."""
        kept = [self._row(step, row, suite) for row in spaced(rows, self._per_step)]
        for row in kept:
            self._log.write(row, (step, int(suite is not None)))
        return kept

    def rewind(self, step: int) -> None:
        """The run continues after this step: later rows leave the file. write() does so by itself."""
        self._log.cut((step + 1, 0))

    def close(self) -> None:
        self._log.close()

    def _row(self, step: int, row: Mapping[str, Any], suite: str | None) -> JsonDict:
        shown: JsonDict = {"step": step} if suite is None else {"step": step, "suite": suite}
        return shown | {name: plain_cell(row.get(name), self._characters) for name in COLUMNS}


def read_samples(folder: Path) -> list[JsonDict]:
    """The rows in the order they were written."""
    return list(read_steps(folder / FILE))


def spaced(rows: Sequence[T], most: int) -> list[T]:
    """At most `most` items, from the whole length of the list: a step's first rows are often one task's."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i * len(rows) // most] for i in range(most)]


def plain_cell(value: Any, most: int) -> str | float | bool | None:
    """A cell: numbers and truth as they are, everything else as text of bounded length."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = clean_text(text)
    return text if len(text) <= most else f"{text[:most]} ... [{len(text) - most} more characters]"
