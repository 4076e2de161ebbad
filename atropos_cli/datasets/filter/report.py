"""What a filter reports: how many rollouts and groups, before and after, and why the others were dropped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.io.records import Record

_NAMES = 10_000
OTHER_NAMES = "(others)"


@dataclass(slots=True)
class Tally:
    """Counts of one kind of task: rollouts and groups, before and after; scores before."""

    rollouts: int = 0
    rollouts_kept: int = 0
    groups: int = 0
    groups_kept: int = 0
    scored: int = 0
    score_sum: float = 0.0
    score_min: float | None = None
    score_max: float | None = None

    def see(self, rollouts: int, scores: list[float]) -> None:
        """Count a group: its rollouts, and the scores that are known."""
        self.groups += 1
        self.rollouts += rollouts
        if not scores:
            return
        self.scored += len(scores)
        self.score_sum += sum(scores)
        low, high = min(scores), max(scores)
        if self.score_min is None or low < self.score_min:
            self.score_min = low
        if self.score_max is None or high > self.score_max:
            self.score_max = high

    def absorb(self, row: list[Any]) -> None:
        """Add a tally of another part of the input, as a row of its fields."""
        *sums, low, high = row
        for name, value in zip(_SUMS, sums, strict=True):
            setattr(self, name, getattr(self, name) + value)
        if low is not None:
            self.score_min = low if self.score_min is None else min(self.score_min, low)
            self.score_max = high if self.score_max is None else max(self.score_max, high)

    def as_row(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]

    def as_json(self) -> dict[str, Any]:
        return {
            "groups": self.groups,
            "groups_kept": self.groups_kept,
            "rollouts": self.rollouts,
            "rollouts_kept": self.rollouts_kept,
            "retention": self.rollouts_kept / self.rollouts if self.rollouts else None,
            "scored": self.scored,
            "score_mean": self.score_sum / self.scored if self.scored else None,
            "score_min": self.score_min,
            "score_max": self.score_max,
        }


_SUMS = Tally.__slots__[:-2]


@dataclass(slots=True)
class FilterReport:
    """The kept rollouts, and why the rest was dropped. dropped: rollouts by rule; empty groups count as one each."""

    rules: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    total: Tally = field(default_factory=Tally)
    by_name: dict[str, Tally] = field(default_factory=dict)
    by_env: dict[str, Tally] = field(default_factory=dict)
    cut_fields: set[str] = field(default_factory=set)
    decontamination: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)

    def tallies(self, record: Record) -> tuple[Tally, Tally, Tally]:
        name = record.task_name or record.env or "-"
        return self.total, tally_of(self.by_name, name), tally_of(self.by_env, record.env or "-")

    def as_json(self) -> dict[str, Any]:
        return {
            "rules": self.rules,
            **self.total.as_json(),
            "group_retention": self.total.groups_kept / self.total.groups if self.total.groups else None,
            "dropped": dict(self.dropped.most_common()),
            "tasks": {name: tally.as_json() for name, tally in self.by_name.items()},
            "environments": {name: tally.as_json() for name, tally in self.by_env.items()},
            "cut_fields": sorted(self.cut_fields),
            "decontamination": self.decontamination,
            "warnings": self.warnings,
        }


def tally_of(table: dict[str, Tally], name: str) -> Tally:
    if name not in table and len(table) >= _NAMES:
        name = OTHER_NAMES
    return table.setdefault(name, Tally())
