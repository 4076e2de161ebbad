"""Estimators over the attempts at a task: pass@k, pass^k, best of k, spread of groups, retention.

pass@k: at least one of k attempts succeeds, 1 - C(n-c, k) / C(n, k) (arXiv 2107.03374). pass^k: all k do,
C(c, k) / C(n, k) (2406.12045). Both are unbiased for each task; the mean over tasks comes after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ZERO_SPREAD = 1e-8
"""Rewards closer than this are equal."""


class CountError(ValueError):
    """Counts from which nothing can be estimated. code: k_exceeds_n, c_exceeds_n, k_not_positive or c_negative."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _check(n: int, c: int, k: int) -> None:
    if k < 1:
        raise CountError("k_not_positive", f"k must be at least 1, not {k}")
    if c < 0:
        raise CountError("c_negative", f"{c} successes")
    if c > n:
        raise CountError("c_exceeds_n", f"{c} successes in {n} attempts")
    if k > n:
        raise CountError("k_exceeds_n", f"{n} attempts are fewer than k = {k}")


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n attempts, c of them successes, hold a success. Raises CountError, for k > n too."""
    _check(n, c, k)
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that k of n attempts, c of them successes, are all successes. Raises CountError."""
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def expected_best_of_k(rewards: Sequence[float], k: int) -> float:
    """The mean of the best of k rewards drawn without replacement. Raises CountError."""
    n = len(rewards)
    _check(n, 0, k)
    draws = math.comb(n, k)
    return math.fsum(reward * (math.comb(i, k - 1) / draws) for i, reward in enumerate(sorted(rewards)))


@dataclass(frozen=True, slots=True)
class Threshold:
    """A bound on rewards with its operator."""

    value: float
    op: Literal[">", ">="] = ">="

    def reached(self, reward: float) -> bool:
        return reward > self.value if self.op == ">" else reward >= self.value

    def __str__(self) -> str:
        return f"{self.op}{self.value:g}"
