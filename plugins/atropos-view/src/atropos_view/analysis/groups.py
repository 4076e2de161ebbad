"""Counts over groups: how many teach nothing because their rewards do not differ, how many pass a threshold.

Groups with at least two rewards count for the first, groups with one for the second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.sdk.analysis import ZERO_SPREAD, Threshold


@dataclass(slots=True)
class _AtExtreme:
    """How many of the values seen so far equal the largest of them (the smallest, with sign -1)."""

    sign: float
    value: float = -math.inf
    count: int = 0

    def add(self, value: float) -> None:
        signed = self.sign * value
        if signed > self.value + ZERO_SPREAD:
            self.value, self.count = signed, 1
        elif signed >= self.value - ZERO_SPREAD:
            self.count += 1

    def absorb(self, value: float, count: int) -> None:
        """Add the counts of other values."""
        if value > self.value + ZERO_SPREAD:
            self.value, self.count = value, count
        elif value >= self.value - ZERO_SPREAD:
            self.count += count

    def matching(self, extreme: float) -> int:
        return self.count if abs(self.sign * extreme - self.value) <= ZERO_SPREAD else 0


@dataclass(slots=True)
class Retention:
    """What a threshold keeps: rewards of all, and groups with at least one kept."""

    threshold: Threshold
    kept: int = 0
    total: int = 0
    groups_kept: int = 0
    groups: int = 0

    def add(self, kept: int, total: int) -> None:
        """One group of `total` rewards; one without rewards does not count."""
        if total:
            self.kept += kept
            self.total += total
            self.groups_kept += kept > 0
            self.groups += 1

    def state(self) -> list[int]:
        """What `absorb` takes."""
        return [self.kept, self.total, self.groups_kept, self.groups]

    def absorb(self, state: list[int]) -> None:
        """Add the counts of other groups."""
        kept, total, groups_kept, groups = state
        self.kept += kept
        self.total += total
        self.groups_kept += groups_kept
        self.groups += groups

    def add_row(self, reward: float) -> None:
        """One reward whose group is not at hand; `add_best` counts the group later."""
        self.kept += self.threshold.reached(reward)
        self.total += 1

    def add_best(self, best: float) -> None:
        """A group whose rewards were added one by one, by the best of them."""
        self.groups_kept += self.threshold.reached(best)
        self.groups += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "threshold": str(self.threshold),
            "kept": self.kept,
            "total": self.total,
            "retention": self.kept / self.total if self.total else None,
            "groups_kept": self.groups_kept,
            "groups": self.groups,
            "group_retention": self.groups_kept / self.groups if self.groups else None,
        }


@dataclass(slots=True)
class GroupTally:
    """Running counts over groups, in constant memory; the extremes of the rewards need not be known beforehand."""

    groups: int = 0
    zero_std: int = 0
    _top: _AtExtreme = field(default_factory=lambda: _AtExtreme(1.0))
    _bottom: _AtExtreme = field(default_factory=lambda: _AtExtreme(-1.0))

    def add(self, n: int, low: float, high: float) -> None:
        """A group by its number of rewards and their extremes."""
        if n < 2:
            return
        self.groups += 1
        if high - low <= ZERO_SPREAD:
            self.zero_std += 1
            self._top.add(high)
            self._bottom.add(low)

    def state(self) -> list[Any]:
        """What `absorb` takes."""
        return [self.groups, self.zero_std, *([one.value, one.count] for one in (self._top, self._bottom))]

    def absorb(self, state: list[Any]) -> None:
        """Add the counts of other groups."""
        groups, zero_std, top, bottom = state
        self.groups += groups
        self.zero_std += zero_std
        if zero_std:
            self._top.absorb(*top)
            self._bottom.absorb(*bottom)

    def as_json(self, low: float, high: float) -> dict[str, Any]:
        """low, high: the extremes a reward can have, or had. When they are one value, no share at them is told."""
        known = self.groups > 0 and high - low > ZERO_SPREAD
        return {
            "groups": self.groups,
            "frac_reward_zero_std": self.zero_std / self.groups if self.groups else None,
            "frac_all_max": self._top.matching(high) / self.groups if known else None,
            "frac_all_min": self._bottom.matching(low) / self.groups if known else None,
        }
