"""Analyzers: what `atropos analyze` says of one environment's rollouts beyond what it says of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.stats.charts import Chart

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class AnalyzedRollout:
    """A stored rollout. messages: OpenAI-shaped objects, the prompt's first; do not change them.

    reward: None when there is none. failed: it has a failure instead of a result. completion_tokens: None when
    not stored. Values come from files: whatever a plugin expects of info and metrics may be absent or odd.
    """

    reward: float | None
    rewards: Mapping[str, Any]
    metrics: Mapping[str, Any]
    info: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    stop_reason: str | None = None
    completion_tokens: int | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class AnalyzedGroup:
    """A stored group. episode_id, turn: set when the group is one turn of an episode; last: the task's last group."""

    group_id: str
    task_id: str | None
    task_info: Mapping[str, Any]
    rollouts: Sequence[AnalyzedRollout]
    model: str | None = None
    episode_id: str | None = None
    turn: int | None = None
    last: bool = True


@dataclass(frozen=True, slots=True)
class AnalysisTable:
    """A table of the report. name: its key in the JSON, where each row is an object by column.

    shares: columns of parts of 1, shown as per cent. A cell None is a value that there is not.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    shares: tuple[str, ...] = ()
    note: str = ""


class Analyzer(ABC):
    """Counts the groups of one environment while they stream by. Its memory must not grow with them.

    Groups come in the order of the file, the turns of an episode one after another. An exception ends this
    analyzer, not the command.
    """

    @abstractmethod
    def add(self, group: AnalyzedGroup) -> None:
        """Count a group."""

    @abstractmethod
    def tables(self) -> Iterable[AnalysisTable]:
        """What was counted; asked for once, after the last group."""

    def charts(self) -> Iterable[Chart]:
        """Pictures of it, for the page and for --png; asked for after `tables`."""
        return ()
