"""Where rewards differ: by what tasks say of themselves (kind, difficulty ...), by model, by options of the runs.

Every name is counted until it turns out to tell tasks apart rather than to sort them: ids, seeds, texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from atropos_cli.sdk.analysis import ZERO_SPREAD, finite
from atropos_cli.sdk.data import Record

NAMES = 40
VALUES = 24
"""Values of one name; a name with more does not sort tasks."""

RUNS = 500
"""Runs whose options are told apart."""

_LONGEST = 60


@dataclass(slots=True)
class Part:
    """The groups that share a value. differing: those of at least two rewards that are not all the same.

    means: groups with a reward, whose means are what the standard error is of: rollouts of a group are no
    independent draws.
    """

    groups: int = 0
    rollouts: int = 0
    failed: int = 0
    compared: int = 0
    differing: int = 0
    scored: int = 0
    total: float = 0.0
    squares: float = 0.0
    means: int = 0
    means_total: float = 0.0
    means_squares: float = 0.0

    def add(self, other: Part) -> None:
        """Groups that have the value as well."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def mean(self) -> float | None:
        return finite(self.total / self.scored) if self.scored else None

    @property
    def within(self) -> float:
        """Sum of squared distances from the mean."""
        return max(0.0, self.squares - self.total * self.total / self.scored) if self.scored else 0.0

    def as_json(self, value: str) -> dict[str, Any]:
        error = None
        if self.means > 1:
            around = max(0.0, self.means_squares - self.means_total * self.means_total / self.means)
            error = math.sqrt(around / (self.means - 1) / self.means)
        return {
            "value": value,
            "groups": self.groups,
            "rollouts": self.rollouts,
            "failed": self.failed,
            "reward_mean": self.mean,
            "reward_stderr": finite(error),
            "groups_compared": self.compared,
            "groups_with_spread": self.differing,
        }


_COUNTS = tuple(each.name for each in fields(Part))


class Differences:
    """Counts groups by each name and value, and by the options of their runs."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Part] | None] = {}
        self._runs: dict[int, tuple[Mapping[str, Any], Part]] = {}

    def add(self, record: Record, options: Mapping[str, Any] | None) -> None:
        """A group. options: those of the environment in its run, the same object for all groups of the run."""
        group = _counted(record)
        for name, value in _names(record).items():
            parts = self._parts.get(name, {}) if name in self._parts or len(self._parts) < NAMES else None
            if parts is None:
                continue
            if value not in parts and len(parts) >= VALUES:
                self._parts[name] = None
                continue
            self._parts[name] = parts
            parts.setdefault(value, Part()).add(group)
        if options and (id(options) in self._runs or len(self._runs) < RUNS):
            self._runs.setdefault(id(options), (options, Part()))[1].add(group)

    def state(self) -> dict[str, Any]:
        """What `absorb` takes."""
        parts = [
            [name, None if found is None else [[value, _row(part)] for value, part in found.items()]]
            for name, found in self._parts.items()
        ]
        return {"parts": parts, "runs": [[dict(options), _row(part)] for options, part in self._runs.values()]}

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of other groups."""
        for name, found in state["parts"]:
            if name not in self._parts and len(self._parts) >= NAMES:
                continue
            parts = self._parts.setdefault(name, {})
            if parts is None or found is None or len({*parts, *(value for value, _ in found)}) > VALUES:
                self._parts[name] = None
                continue
            for value, row in found:
                parts.setdefault(value, Part()).add(Part(*row))
        for options, row in state["runs"]:
            same = next((key for key, (known, _) in self._runs.items() if known == options), None)
            if same is not None or len(self._runs) < RUNS:
                self._runs.setdefault(same or id(options), (options, Part()))[1].add(Part(*row))

    def as_json(self) -> list[dict[str, Any]]:
        """The names by how much of the rewards' variance they explain; of two that sort alike only the first."""
        found = []
        seen = set()
        for name, parts in (*self._parts.items(), *self._by_option().items()):
            if parts is None or not _sorts(parts):
                continue
            shape = frozenset((p.groups, p.rollouts, p.failed, p.scored, p.total) for p in parts.values())
            if (len(parts), shape) in seen:
                continue
            seen.add((len(parts), shape))
            ordered = sorted(parts.items(), key=lambda item: (-(item[1].mean or 0.0), item[0]))
            rows = [part.as_json(value) for value, part in ordered]
            found.append({"by": name, "explained": _explained(list(parts.values())), "parts": rows})
        return sorted(found, key=lambda item: -(item["explained"] or 0.0))

    def _by_option(self) -> dict[str, dict[str, Part]]:
        found: dict[str, dict[str, Part]] = {}
        for options, part in self._runs.values():
            for name, value in options.items():
                text = _text(value)
                if text is not None:
                    found.setdefault(f"option {str(name)[:_LONGEST]}", {}).setdefault(text, Part()).add(part)
        return found


def _row(part: Part) -> list[Any]:
    return [getattr(part, name) for name in _COUNTS]


def _counted(record: Record) -> Part:
    alive = [rollout for rollout in record.rollouts if rollout.failure is None]
    rewards = [rollout.score for rollout in alive if rollout.score is not None and math.isfinite(rollout.score)]
    compared = len(rewards) > 1
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    return Part(
        groups=1,
        rollouts=len(record.rollouts),
        failed=len(record.rollouts) - len(alive),
        compared=int(compared),
        differing=int(compared and max(rewards) - min(rewards) > ZERO_SPREAD),
        scored=len(rewards),
        total=sum(rewards),
        squares=sum(reward * reward for reward in rewards),
        means=int(bool(rewards)),
        means_total=mean,
        means_squares=mean * mean,
    )


def _sorts(parts: Mapping[str, Part]) -> bool:
    """Are there groups to compare, rather than a value for each group? Numbers are likelier to be the latter."""
    groups = sum(part.groups for part in parts.values())
    numbers = all(value.lstrip("-").isdigit() for value in parts)
    return len(parts) > 1 and groups >= (2 * len(parts) if numbers else len(parts) + 1)


def _explained(parts: Sequence[Part]) -> float | None:
    """Share of the rewards' variance that lies between the parts (eta squared); None where nothing varies."""
    whole = Part()
    for part in parts:
        whole.add(part)
    total, within = whole.within, math.fsum(part.within for part in parts)
    return min(1.0, max(0.0, 1 - within / total)) if 0 < total < math.inf else None


def _names(record: Record) -> dict[str, str]:
    found: dict[str, Any] = {}
    if isinstance(record.info, dict):
        found = {str(name)[:_LONGEST]: value for name, value in list(record.info.items())[:NAMES]}
    if record.task_name is not None:
        found.setdefault("task_name", record.task_name)
    found["model"] = record.model
    return {name: text for name, value in found.items() if (text := _text(value)) is not None}


def _text(value: Any) -> str | None:
    """Of values that may sort tasks: words, yes and no, whole numbers."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value) if abs(value) < 1_000_000 else None
    return value if isinstance(value, str) and 0 < len(value) <= _LONGEST and "\n" not in value else None
