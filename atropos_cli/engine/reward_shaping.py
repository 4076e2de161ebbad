"""What is done to rewards before advantages: length shaping, returns over turns, KL estimates, which groups to keep.

Pure functions on numbers; log probabilities are natural logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


def dynamic_sampling_keep(correct: Sequence[bool | int]) -> bool:
    """DAPO's rule (arXiv 2503.14476): keep a prompt whose answers are neither all right nor all wrong.

    It tests correctness, not reward: length shaping makes the rewards of an all-correct group differ.
    """
    right = sum(1 for value in correct if value)
    return 0 < right < len(correct)


def soft_overlong(length: int, max_len: int, cache: int) -> float:
    """DAPO's soft overlong punishment: 0 up to max_len - cache tokens, then falling to -1 at max_len and beyond.

    cache 0 makes it a step: 0 up to max_len, -1 above.
    """
    if cache < 0 or max_len < cache:
        raise ValueError(f"cache must be between 0 and max_len ({max_len}), not {cache}")
    free = max_len - cache
    if length <= free:
        return 0.0
    if length > max_len or cache == 0:
        return -1.0
    return (free - length) / cache


def token_length_adjust(score: float, tokens: int, *, baseline: int, scale: float, cap: float) -> float:
    """The score, higher for replies shorter than `baseline` tokens and lower for longer ones.

    The change is |score| * scale * (baseline - tokens), at most |score| * cap either way: a longer reply is
    never better, whatever the sign of the score.
    """
    change = max(-cap, min(cap, scale * (baseline - tokens)))
    return score + abs(score) * change


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_t = r_t + gamma * G_{t+1}, for each turn of an episode."""
    returns = [0.0] * len(rewards)
    following = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        following = rewards[t] + gamma * following
        returns[t] = following
    return returns


def credit_assignment(
    immediate: Sequence[float], final_outcome: float, gamma: float, step_scores: Sequence[float]
) -> list[float]:
    """The value of each turn's action: its own score plus gamma times the return of what followed.

    The return of turn t is immediate[t] + gamma * (return of t + 1); after the last turn it is final_outcome.
    """
    if len(immediate) != len(step_scores):
        raise ValueError(f"{len(step_scores)} step scores for {len(immediate)} turns")
    following = discounted_returns([*immediate, final_outcome], gamma)[1:]
    return [score + gamma * later for score, later in zip(step_scores, following, strict=True)]


class KLEstimates(NamedTuple):
    """Estimates of KL(policy || reference) from one sampled token."""

    k1: float
    k2: float
    k3: float


def kl_estimators(logp: float, logp_ref: float) -> KLEstimates:
    """k1 = d, k2 = d*d/2, k3 = exp(-d) + d - 1, with d = logp - logp_ref. k3 is never negative; GRPO adds it."""
    d = logp - logp_ref
    return KLEstimates(k1=d, k2=d * d / 2, k3=math.expm1(-d) + d)
