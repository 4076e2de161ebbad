"""Order and spread of the scores of a group. Pure functions over lists of scores.

A score of None (never scored, failed, not finite) is never chosen and enters no statistic.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from atropos_cli.rollout.advantages import ZERO_SPREAD

Scores = Sequence[float | None]
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


def group_spread(scores: Scores) -> float | None:
    """Best minus worst; None for fewer than two scored members."""
    known = [score for score in scores if score is not None]
    return max(known) - min(known) if len(known) > 1 else None


def all_equal(scores: Scores) -> bool:
    """Do two or more scored members differ by no more than rounding?"""
    spread = group_spread(scores)
    return spread is not None and spread <= ZERO_SPREAD
