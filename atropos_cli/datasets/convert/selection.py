"""Which rollouts of a group become training data: pure functions on scores, texts and lengths.

All functions take parallel lists, one entry a rollout, and return positions in them. A score of None (never
scored, failed, not finite) is never chosen and never rejected. Ties go to the lower position. A pair needs
chosen > rejected, a gap of at least `margin`, and texts that differ after trimming.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

Scores = Sequence[float | None]
Pair = tuple[int, int]
"""(chosen, rejected)."""

Operator = Literal[">", ">="]
TieBreak = Literal["first", "shorter", "longer"]

_SLACK = 1e-9
"""A gap written as 0.5 may come out of a subtraction as 0.49999999999999994."""


def passes(score: float | None, threshold: float | None, op: Operator = ">") -> bool:
    """Is the score above (">") or at least (">=") the threshold? No threshold lets every scored rollout pass."""
    if score is None or not math.isfinite(score):
        return False
    if threshold is None:
        return True
    return score > threshold if op == ">" else score >= threshold


def scored(scores: Scores) -> list[int]:
    """Positions with a finite score."""
    finite = math.isfinite
    return [i for i, score in enumerate(scores) if score is not None and finite(score)]


def distinct(order: Sequence[int], texts: Sequence[str] | None) -> list[int]:
    """The order without positions whose text, trimmed, came before."""
    if texts is None:
        return list(order)
    seen: set[str] = set()
    kept: list[int] = []
    for i in order:
        text = texts[i].strip()
        if text not in seen:
            seen.add(text)
            kept.append(i)
    return kept


def top_n(
    scores: Scores,
    n: int | None = 1,
    *,
    threshold: float | None = None,
    op: Operator = ">",
    min_gap: float = 0.0,
    texts: Sequence[str] | None = None,
) -> list[int]:
    """The n best rollouts that pass the threshold, best first; all that pass when n is None.

    min_gap: how far above the group's lowest score a rollout must be (strictly), when not 0.
    texts: identical ones are taken once.
    """
    usable = scored(scores)
    if not usable:
        return []
    known: Any = scores
    kept = usable
    if threshold is not None:
        kept = [i for i in kept if passes(scores[i], threshold, op)]
    if min_gap > 0:
        lowest = min(known[i] for i in usable)
        kept = [i for i in kept if known[i] - lowest > min_gap]
    kept = distinct(sorted(kept, key=known.__getitem__, reverse=True), texts)  # stable: the lower position first
    return kept if n is None else kept[:n]


def best_vs_worst(
    scores: Scores,
    *,
    margin: float = 0.0,
    min_chosen: float | None = None,
    texts: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    tiebreak: TieBreak = "first",
) -> list[Pair]:
    """The highest score against the lowest; with texts, the lowest one whose text is another.

    tiebreak: among equal scores, "shorter" prefers the shorter chosen and the longer rejected one, "longer" the
    opposite.
    """
    worst_first = _ranked(scores, lengths, tiebreak, lowest=True)
    for chosen in _ranked(scores, lengths, tiebreak):
        if min_chosen is not None and not passes(scores[chosen], min_chosen, ">="):
            continue
        for rejected in worst_first:
            if _is_pair(scores, chosen, rejected, margin, texts):
                return [(chosen, rejected)]
    return []


def all_pairs(
    scores: Scores,
    *,
    margin: float = 0.0,
    min_chosen: float | None = None,
    texts: Sequence[str] | None = None,
) -> list[Pair]:
    """Every pair with a strict gap, ordered by the chosen position, then the rejected one."""
    usable = scored(scores)
    return [
        (chosen, rejected)
        for chosen in usable
        if min_chosen is None or passes(scores[chosen], min_chosen, ">=")
        for rejected in usable
        if _is_pair(scores, chosen, rejected, margin, texts)
    ]


def best_vs_random(
    scores: Scores,
    rng: Random,
    *,
    margin: float = 0.0,
    min_chosen: float | None = None,
    texts: Sequence[str] | None = None,
) -> list[Pair]:
    """The highest score against a random lower one."""
    for chosen in _ranked(scores):
        if min_chosen is not None and not passes(scores[chosen], min_chosen, ">="):
            continue
        lower = [i for i in scored(scores) if _is_pair(scores, chosen, i, margin, texts)]
        if lower:
            return [(chosen, rng.choice(lower))]
    return []


def correct_vs_wrong(
    scores: Scores,
    *,
    threshold: float,
    max_pairs: int | None = None,
    margin: float = 0.0,
    texts: Sequence[str] | None = None,
) -> list[Pair]:
    """Rollouts that reach the threshold against rollouts below it: best with worst, each used once."""
    right = [i for i in _ranked(scores) if passes(scores[i], threshold, ">=")]
    wrong = [i for i in _ranked(scores, lowest=True) if not passes(scores[i], threshold, ">=")]
    pairs: list[Pair] = []
    for chosen in right:
        for rejected in wrong:
            if _is_pair(scores, chosen, rejected, margin, texts):
                pairs.append((chosen, rejected))
                wrong.remove(rejected)
                break
    return pairs if max_pairs is None else pairs[:max_pairs]


def length_control(pairs: Sequence[Pair], lengths: Sequence[int], max_ratio: float) -> list[Pair]:
    """Pairs whose longer side is at most max_ratio times the shorter one; a side of length 0 never passes."""
    return [(a, b) for a, b in pairs if length_ratio(lengths[a], lengths[b]) <= max_ratio]


def length_ratio(a: int, b: int) -> float:
    """The longer length over the shorter; infinite when one is 0."""
    return max(a, b) / min(a, b) if min(a, b) > 0 else math.inf


def capped(pairs: Sequence[Pair], limit: int | None, rng: Random) -> list[Pair]:
    """At most `limit` of the pairs, drawn without favour, in their order."""
    if limit is None or len(pairs) <= limit:
        return list(pairs)
    return [pairs[i] for i in sorted(rng.sample(range(len(pairs)), limit))]


def is_tie(scores: Scores) -> bool:
    """Two or more scored rollouts, all with the same score."""
    usable = scored(scores)
    return len(usable) > 1 and len({scores[i] for i in usable}) == 1


def group_random(seed: int, group: str) -> Random:
    """A random source of one group: the same on every run, whatever precedes the group."""
    return Random(f"{seed}\x00{group}")


def _ranked(
    scores: Scores, lengths: Sequence[int] | None = None, tiebreak: TieBreak = "first", *, lowest: bool = False
) -> list[int]:
    """Scored positions, the best choice first: for `lowest`, the best one to reject."""
    known: Any = scores
    if lengths is None or tiebreak == "first":
        return sorted(scored(scores), key=known.__getitem__, reverse=not lowest)  # stable either way
    sign = 1.0 if lowest else -1.0
    direction = (-1.0 if lowest else 1.0) * (1.0 if tiebreak == "shorter" else -1.0)
    return sorted(scored(scores), key=lambda i: (sign * known[i], direction * lengths[i]))


def _is_pair(scores: Scores, chosen: int, rejected: int, margin: float, texts: Sequence[str] | None) -> bool:
    better, worse = scores[chosen], scores[rejected]
    if better is None or worse is None or not better > worse or better - worse < margin - _SLACK:
        return False
    return texts is None or texts[chosen].strip() != texts[rejected].strip()
