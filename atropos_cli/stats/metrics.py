"""Estimators for evaluations: pass@k, pass^k, best of k, and how sure one can be of a mean.

pass@k: at least one of k rollouts succeeds, 1 - C(n-c, k) / C(n, k) (arXiv 2107.03374, Eq. 1). pass^k: all
k do, C(c, k) / C(n, k) (arXiv 2406.12045). Both are unbiased for each task; the mean over tasks comes
after. Counts from which nothing can be estimated raise CountError; no task is left out in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from statistics import fmean

from atropos_cli.stats.streaming import quantile

_MOST_DRAWS = 4_000_000


class CountError(ValueError):
    """Counts from which nothing can be estimated.

    code: k_exceeds_n, c_exceeds_n, k_not_positive or c_negative.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _check(n: int, c: int, k: int) -> None:
    if k < 1:
        raise CountError("k_not_positive", f"k must be at least 1, not {k}")
    if c < 0:
        raise CountError("c_negative", f"{c} successes")
    if c > n:
        raise CountError("c_exceeds_n", f"{c} successes in {n} rollouts")
    if k > n:
        raise CountError("k_exceeds_n", f"{n} rollouts are fewer than k = {k}")


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n rollouts, c of them successes, hold a success. Raises CountError, for k > n too."""
    _check(n, c, k)
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that k of n rollouts, c of them successes, are all successes. Raises CountError."""
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def expected_best_of_k(rewards: Sequence[float], k: int) -> float:
    """The mean of the best of k rewards drawn without replacement. Raises CountError."""
    n = len(rewards)
    _check(n, 0, k)
    draws = math.comb(n, k)
    return math.fsum(reward * (math.comb(i, k - 1) / draws) for i, reward in enumerate(sorted(rewards)))


def full_marks(weights: Iterable[float]) -> float:
    """The reward of a perfect rollout when each reward goes from 0 to 1: the sum of the positive weights."""
    return math.fsum(max(0.0, weight) for weight in weights) or 1.0


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95, *, resamples: int = 2_000, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean of independent values; give one value per task.

    None for fewer than two values. Seeded, so that a report can be repeated. With very many values
    fewer resamples are drawn (at least 200): the interval is narrow then.
    """
    n = len(values)
    if n < 2:
        return None
    random = Random(seed)
    count = max(200, min(resamples, _MOST_DRAWS // n))
    means = sorted(fmean(random.choices(values, k=n)) for _ in range(count))
    tail = (1.0 - confidence) / 2
    return quantile(means, tail), quantile(means, 1.0 - tail)
