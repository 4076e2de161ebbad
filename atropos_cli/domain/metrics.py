"""Estimators for evaluations: pass@k, pass^k, best of k, votes, and how sure one can be of a mean.

pass@k: at least one of k attempts succeeds, 1 - C(n-c, k) / C(n, k) (arXiv 2107.03374, Eq. 1). pass^k: all
k do, C(c, k) / C(n, k) (arXiv 2406.12045). Both are unbiased for each task; the mean over tasks comes
after. Counts from which nothing can be estimated raise CountError; no task is left out in silence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from random import Random
from statistics import NormalDist, fmean
from typing import TypeVar

SUCCESS_TOLERANCE = 1e-6
_MOST_DRAWS = 4_000_000

Answer = TypeVar("Answer", bound=Hashable)


class CountError(ValueError):
    """Counts from which nothing can be estimated.

    code: k_exceeds_n, c_exceeds_n, k_not_positive, c_negative or no_tasks. task: the position of the
    task in a mean over tasks.
    """

    def __init__(self, code: str, message: str, *, task: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.task = task


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


def pass_at_k_mean(tasks: Sequence[tuple[int, int]], k: int) -> float:
    """The mean of pass@k over tasks, each (attempts, successes). Raises CountError with the task's position."""
    return _mean_over_tasks(pass_at_k, tasks, k)


def pass_hat_k_mean(tasks: Sequence[tuple[int, int]], k: int) -> float:
    """The mean of pass^k over tasks, each (attempts, successes); not the mean success rate to the power of k."""
    return _mean_over_tasks(pass_hat_k, tasks, k)


def _mean_over_tasks(estimate: Callable[[int, int, int], float], tasks: Sequence[tuple[int, int]], k: int) -> float:
    if not tasks:
        raise CountError("no_tasks", "there are no tasks to take a mean over")
    values = []
    for position, (n, c) in enumerate(tasks):
        try:
            values.append(estimate(n, c, k))
        except CountError as error:
            raise CountError(error.code, f"task {position}: {error}", task=position) from None
    return fmean(values)


def expected_best_of_k(rewards: Sequence[float], k: int) -> float:
    """The mean of the best of k rewards drawn without replacement. Raises CountError."""
    n = len(rewards)
    _check(n, 0, k)
    draws = math.comb(n, k)
    return math.fsum(reward * (math.comb(i, k - 1) / draws) for i, reward in enumerate(sorted(rewards)))


def count_success(rewards: Iterable[float | None], tol: float = SUCCESS_TOLERANCE) -> int:
    """How many rewards are 1 within the tolerance. A missing reward is no success."""
    return sum(1 for reward in rewards if reward is not None and abs(reward - 1.0) <= tol)


def full_marks(weights: Iterable[float]) -> float:
    """The reward of a perfect attempt when each reward goes from 0 to 1: the sum of the positive weights."""
    return math.fsum(max(0.0, weight) for weight in weights) or 1.0


def majority_vote(answers: Iterable[Answer | None]) -> Answer | None:
    """The most frequent answer; among equals the one given first. None does not vote, and is the result of no votes."""
    votes = Counter(answer for answer in answers if answer is not None)
    return votes.most_common(1)[0][0] if votes else None


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval for a share (Wilson 1927); (0, 1) without any observation. Raises CountError.

    For independent trials: several attempts at one task are not, use bootstrap_interval over tasks there.
    """
    if n == 0 and successes == 0:
        return 0.0, 1.0
    _check(n, successes, 1)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, spread = successes / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return (0.0 if successes == 0 else low), (1.0 if successes == n else high)


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
    return _quantile(means, tail), _quantile(means, 1.0 - tail)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of sorted values, interpolated between neighbours."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
