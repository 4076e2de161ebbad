"""Choices within a group by score, and what share was kept. Pure functions over lists of scores.

A score of None (never scored, failed, not finite) is never chosen and enters no statistic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from atropos_cli.engine.advantages import ZERO_SPREAD

Scores = Sequence[float | None]
Op = Literal[">", ">="]
OPS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def ranked(scores: Scores, lengths: Sequence[int] | None = None) -> list[int]:
    """Indices of the scored members, best first. Ties: the shorter one where lengths are given, else the first."""
    known = [(score, i) for i, score in enumerate(scores) if score is not None]
    known.sort(key=lambda pair: (-pair[0], lengths[pair[1]] if lengths is not None else 0, pair[1]))
    return [i for _, i in known]


def best_of_n(scores: Scores, lengths: Sequence[int] | None = None) -> int | None:
    """Index of the best member; None when nothing is scored."""
    order = ranked(scores, lengths)
    return order[0] if order else None


def top_n(
    scores: Scores,
    n: int,
    *,
    threshold: float | None = None,
    op: Op = ">",
    min_gap_over_group_min: float = 0.0,
    lengths: Sequence[int] | None = None,
) -> list[int]:
    """The n best members that pass `score op threshold`, best first.

    min_gap_over_group_min: when above 0, a member must also lie more than this above the group's worst score.
    """
    known = [score for score in scores if score is not None]
    if not known:
        return []
    worst = min(known)
    chosen = []
    for i in ranked(scores, lengths):
        score = scores[i]
        assert score is not None
        if threshold is not None and not OPS[op](score, threshold):
            continue
        if min_gap_over_group_min > 0 and not score - worst > min_gap_over_group_min:
            continue
        chosen.append(i)
        if len(chosen) == n:
            break
    return chosen


def group_spread(scores: Scores) -> float | None:
    """Best minus worst; None for fewer than two scored members."""
    known = [score for score in scores if score is not None]
    return max(known) - min(known) if len(known) > 1 else None


def all_equal(scores: Scores) -> bool:
    """Do two or more scored members differ by no more than rounding?"""
    spread = group_spread(scores)
    return spread is not None and spread <= ZERO_SPREAD


@dataclass(frozen=True, slots=True)
class Retention:
    """Kept members over scored members, and groups with one kept over groups. None for no data."""

    kept: int
    total: int
    groups_kept: int
    groups: int

    @property
    def retention(self) -> float | None:
        return self.kept / self.total if self.total else None

    @property
    def group_retention(self) -> float | None:
        return self.groups_kept / self.groups if self.groups else None


def retention(groups: Iterable[Scores], threshold: float, op: Op) -> Retention:
    """What a threshold keeps. Members without a score count neither as kept nor in the total."""
    kept = total = groups_kept = count = 0
    test = OPS[op]
    for scores in groups:
        known = [score for score in scores if score is not None]
        passed = sum(test(score, threshold) for score in known)
        kept += passed
        total += len(known)
        groups_kept += passed > 0
        count += 1
    return Retention(kept, total, groups_kept, count)
