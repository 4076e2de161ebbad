"""What plugins add to the analysis of their environments; one that fails is left out, with a note."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from atropos_cli.sdk.analysis import AnalysisTable, AnalyzedGroup, AnalyzedRollout, Analyzer, Cell, Chart
from atropos_cli.sdk.data import Record, StoredRollout

FindAnalyzers = Callable[[str], tuple[list[tuple[str, Analyzer]], list[str]]]
"""The (plugin, analyzer)s for an environment's name, and what went wrong when plugins were asked."""

ROWS = 1000
"""Rows of a table that are kept."""


@dataclass(slots=True)
class Findings:
    """What all analyzers of an environment found."""

    tables: list[AnalysisTable] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Plugged:
    """The analyzers of one environment."""

    def __init__(self, analyzers: Sequence[tuple[str, Analyzer]], problems: Iterable[str]) -> None:
        self._analyzers = list(analyzers)
        self._notes = [f"no analysis by {problem}" for problem in problems]

    def add(self, record: Record) -> None:
        """Show a record to all of them."""
        if not self._analyzers:
            return
        group = as_group(record)
        for entry in list(self._analyzers):
            plugin, analyzer = entry
            try:
                analyzer.add(group)
            except Exception as error:  # noqa: BLE001 - a plugin's fault ends its own analysis only
                self._drop(entry, plugin, error, f" at {record.where}")

    def leave_out(self, why: str) -> None:
        """No analyzer has anything to say."""
        self._notes += [f"no analysis by plugin {plugin!r}: {why}" for plugin, _ in self._analyzers]
        self._analyzers.clear()

    def findings(self) -> Findings:
        """Their tables and charts, as far as they are well formed."""
        found = Findings(notes=self._notes)
        for entry in list(self._analyzers):
            plugin, analyzer = entry
            try:
                tables = [_checked_table(table) for table in analyzer.tables()]
                charts = [_checked_chart(chart) for chart in analyzer.charts()]
            except Exception as error:  # noqa: BLE001 - a plugin's fault ends its own analysis only
                self._drop(entry, plugin, error, "")
                continue
            for table in tables:
                taken = table.name in [other.name for other in found.tables]
                found.tables.append(replace(table, name=f"{plugin}-{table.name}") if taken else table)
            for chart in charts:
                taken = chart.name in [other.name for other in found.charts]
                found.charts.append(replace(chart, name=f"{plugin}-{chart.name}") if taken else chart)
        return found

    def _drop(self, entry: tuple[str, Analyzer], plugin: str, error: Exception, where: str) -> None:
        self._analyzers.remove(entry)
        self._notes.append(f"no analysis by plugin {plugin!r}{where}: {type(error).__name__}: {error}")


def as_group(record: Record) -> AnalyzedGroup:
    """A record as analyzers see it."""
    last = record.raw.get("last") if isinstance(record.raw, dict) else None
    return AnalyzedGroup(
        group_id=record.id,
        task_id=record.task_id,
        task_info=record.info,
        rollouts=[_as_rollout(rollout) for rollout in record.rollouts],
        model=record.model,
        episode_id=record.episode_id,
        turn=record.turn,
        last=last is not False,
    )


def _as_rollout(rollout: StoredRollout) -> AnalyzedRollout:
    return AnalyzedRollout(
        reward=rollout.score if rollout.failure is None else None,
        rewards=rollout.rewards,
        metrics=_object(rollout.raw.get("metrics")),
        info=_object(rollout.raw.get("info")),
        messages=rollout.messages,
        stop_reason=rollout.stop_reason,
        completion_tokens=rollout.completion_tokens,
        failed=rollout.failure is not None,
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def table_as_json(table: AnalysisTable) -> dict[str, Any]:
    """The table as JSON: each row by column."""
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return {"title": table.title, "rows": rows, "note": table.note}


def cell_texts(table: AnalysisTable) -> list[list[str]]:
    """The cells as they are shown."""
    shares = [column in table.shares for column in table.columns]
    return [[_text(cell, share) for cell, share in zip(row, shares, strict=True)] for row in table.rows]


def _text(cell: Cell, share: bool) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if share:
        return f"{100 * cell:.1f} %"
    return str(cell) if isinstance(cell, int) else f"{cell:.4g}"


def _checked_table(table: AnalysisTable) -> AnalysisTable:
    if not isinstance(table, AnalysisTable):
        raise TypeError(f"tables() gave {type(table).__name__}, not an AnalysisTable")
    rows = []
    for row in list(table.rows)[:ROWS]:
        if len(row) != len(table.columns):
            raise ValueError(f"table {table.name!r} has a row of {len(row)} cells for {len(table.columns)} columns")
        # What is no number any more is nothing that a reader or a JSON parser could use.
        rows.append(tuple(None if isinstance(cell, float) and not math.isfinite(cell) else cell for cell in row))
    return replace(table, columns=tuple(table.columns), rows=rows)


def _checked_chart(chart: Chart) -> Chart:
    if not isinstance(chart, Chart):
        raise TypeError(f"charts() gave {type(chart).__name__}, not a Chart")
    numbers = [value for bar in chart.bars for value in bar] + [value for _, value in chart.categories]
    for line in chart.lines:
        if len(line.xs) != len(line.ys) or (line.errors is not None and len(line.errors) != len(line.xs)):
            raise ValueError(f"chart {chart.name!r} has a line of {len(line.xs)} and {len(line.ys)} values")
        numbers += [*line.xs, *line.ys, *(line.errors or ())]
    if not all(map(math.isfinite, numbers)) or any(value < 0 for _, value in chart.categories):
        raise ValueError(f"chart {chart.name!r} has values that cannot be drawn")
    return chart
