"""metrics.jsonl: the numbers of each optimiser step and of each evaluation, one JSON object a line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from atropos_cli.domain.base import JsonDict, is_finite
from atropos_cli.errors import TrainerError
from atropos_cli.io.rundir import now
from atropos_cli.training.steplog import StepLog, read_steps

FILE = "metrics.jsonl"
RESERVED = ("step", "time", "kind")
"""Keys of a line that are not metrics."""

Values = dict[str, float | None]


class MetricsLog:
    """Appends to a run folder's metrics.jsonl; see StepLog for what happens after a resume."""

    def __init__(self, folder: Path) -> None:
        self._log = StepLog(folder / FILE)

    def write(self, step: int, metrics: Mapping[str, float]) -> Values:
        """Record an optimiser step; returns the written values: None for those that are not finite."""
        return self._write(step, metrics, "train")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> Values:
        """Record what an evaluation after `step` optimiser steps found."""
        return self._write(step, metrics, "eval")

    def rewind(self, step: int) -> None:
        """The run continues after this step: later lines leave the file. write() does so by itself."""
        self._log.cut((step + 1, 0))

    def close(self) -> None:
        self._log.close()

    def _write(self, step: int, metrics: Mapping[str, float], kind: str) -> Values:
        values = finite(metrics)
        record: JsonDict = {"step": step, "time": now(), "kind": kind, **values}
        self._log.write(record, (step, int(kind == "eval")))
        return values


def finite(metrics: Mapping[str, float]) -> Values:
    """The values as plain numbers; None for one that is not finite. Raises TrainerError for anything but numbers."""
    values: Values = {}
    for name, value in metrics.items():
        if name in RESERVED:
            continue
        if type(value) is int:
            values[name] = value if is_finite(value) else None
            continue
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise TrainerError(f"metric {name!r} is not a number: {value!r:.100}") from error
        values[name] = number if math.isfinite(number) else None
    return values


def read_metrics(folder: Path) -> list[tuple[int, Values]]:
    """(step, values) in order; an evaluation's values join those of its step."""
    rows: list[tuple[int, Values]] = []
    for record in read_steps(folder / FILE):
        step = record["step"]
        assert isinstance(step, int)
        values: Values = {
            key: value if is_finite(value) else None
            for key, value in record.items()
            if key not in RESERVED and (value is None or (isinstance(value, int | float) and type(value) is not bool))
        }
        if rows and rows[-1][0] == step:
            rows[-1][1].update(values)
        else:
            rows.append((step, values))
    return rows


def series(rows: list[tuple[int, Values]], name: str) -> list[tuple[int, float]]:
    """(step, value) of one metric, without the steps that lack it."""
    return [(step, value) for step, values in rows if (value := values.get(name)) is not None]
