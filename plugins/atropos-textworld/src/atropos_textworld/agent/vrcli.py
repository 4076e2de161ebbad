"""VR-CLI: how much a prediction helps a frozen scorer to expect what really happened.

Gurung and Lapata 2025 (arXiv 2503.22828). x is the context, a the prediction, y what happened (T tokens):

    PPL(y|c) = exp(-(1/T) sum_t log p(y_t | c, y_<t))        I = 100 * (1 - PPL(y|x,a) / PPL(y|x))

In a game x is the observation with the chosen action, a the expected outcome, y the observation after the
action was really executed. Perplexities are never formed: with d = mean log p(y|x,a) - mean log p(y|x),
I = -100 * expm1(-d), which neither overflows nor loses small improvements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Flag = Literal["not_executed", "empty_prediction", "base_infinite"]

THRESHOLDS = (0.05, 1.0, 2.0)
"""Improvements in percent from which the levels are earned (inclusive)."""
LEVELS = (0.5, 0.9, 1.0)
"""Reward of each threshold; 0.0 below the first."""
_ROUNDING = 1e-6


class UnscorableError(ValueError):
    """The log-probabilities cannot be a scorer's: `kind` says why. Never a reward of 0."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class VrcliScore:
    """discrete: one of the levels; continuous: max(0, I/100). None where there is nothing to score."""

    improvement_pct: float | None
    discrete: float | None
    continuous: float | None
    flag: Flag | None = None


def check_logprobs(values: Sequence[float]) -> None:
    """Raises UnscorableError for none at all, NaN, or a value above 0 (beyond rounding)."""
    if not values:
        raise UnscorableError("empty_completion", "no tokens to score")
    for value in values:
        if math.isnan(value):
            raise UnscorableError("missing_logprob", "a token has no log-probability")
        if value > _ROUNDING:
            raise UnscorableError("positive_logprob", f"log-probability {value} is above 0")


def discretize(
    improvement_pct: float, thresholds: Sequence[float] = THRESHOLDS, levels: Sequence[float] = LEVELS
) -> float:
    """The level of the highest threshold reached, 0.0 below the first."""
    reward = 0.0
    for threshold, level in zip(thresholds, levels, strict=True):
        if improvement_pct >= threshold:
            reward = level
    return reward


def continuous(improvement_pct: float) -> float:
    """max(0, I / 100)."""
    return max(0.0, improvement_pct / 100.0)


def vrcli(
    base_logprobs: Sequence[float] | None,
    cond_logprobs: Sequence[float] | None,
    *,
    prediction: str | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
) -> VrcliScore:
    """Score one prediction from the log-probabilities of the same tokens of y in both passes.

    None for either pass means that the action was never executed: all values are None. A blank
    prediction earns 0 without being scored. Raises UnscorableError for passes that do not match.
    """
    if base_logprobs is None or cond_logprobs is None:
        return VrcliScore(None, None, None, "not_executed")
    if prediction is not None and not prediction.strip():
        return VrcliScore(None, 0.0, 0.0, "empty_prediction")
    check_logprobs(base_logprobs)
    check_logprobs(cond_logprobs)
    if len(base_logprobs) != len(cond_logprobs):
        raise UnscorableError(
            "token_count_mismatch",
            f"{len(base_logprobs)} tokens without the prediction, {len(cond_logprobs)} with it",
        )
    count = len(base_logprobs)
    base = math.fsum(base_logprobs) / count
    if math.isinf(base):
        # Any prediction would be a full win over an impossible base.
        return VrcliScore(None, 0.0, 0.0, "base_infinite")
    gain = math.fsum(cond_logprobs) / count - base
    try:
        improvement = -100.0 * math.expm1(-gain)
    except OverflowError:
        improvement = -math.inf
    return VrcliScore(improvement, discretize(improvement, thresholds), continuous(improvement))
