"""Estimators for evaluations against the table of worked rows, enumeration and known intervals."""

from __future__ import annotations

import itertools
import statistics
from random import Random
from typing import Any

import case_tables
import pytest

from atropos_cli.stats import metrics
from atropos_cli.stats.metrics import CountError

OURS = {"pass_at_k", "pass_hat_k", "expected_best_of_k"}


@pytest.mark.parametrize("row", case_tables.params("passk", lambda row: row["fn"] in OURS))
def test_case(row: dict[str, Any]) -> None:
    given, expected = dict(row["input"]), row["expected"]
    function = getattr(metrics, row["fn"])
    if isinstance(expected, dict):
        with pytest.raises(CountError) as failure:
            function(**given)
        assert failure.value.code == expected["error"]
    else:
        assert function(**given) == pytest.approx(expected, abs=row["tol"])


def test_estimators_agree_with_enumeration() -> None:
    for n in range(1, 7):
        for c in range(n + 1):
            outcomes = [1] * c + [0] * (n - c)
            for k in range(1, n + 1):
                draws = list(itertools.combinations(outcomes, k))
                assert metrics.pass_at_k(n, c, k) == pytest.approx(sum(map(max, draws)) / len(draws))
                assert metrics.pass_hat_k(n, c, k) == pytest.approx(sum(map(min, draws)) / len(draws))
                assert metrics.expected_best_of_k(outcomes, k) == pytest.approx(metrics.pass_at_k(n, c, k))


def test_best_of_k_of_real_rewards_agrees_with_enumeration() -> None:
    random = Random(1)
    rewards = [random.gauss(0, 2) for _ in range(7)]
    for k in range(1, 8):
        best = [max(draw) for draw in itertools.combinations(rewards, k)]
        assert metrics.expected_best_of_k(rewards, k) == pytest.approx(statistics.fmean(best))


def test_large_counts_stay_finite() -> None:
    assert metrics.pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)
    assert metrics.pass_hat_k(2_000, 1_999, 1_000) == pytest.approx(0.5)


def test_bootstrap_interval_is_near_the_normal_one_and_repeatable() -> None:
    random = Random(5)
    values = [random.gauss(1, 2) for _ in range(400)]
    interval = metrics.bootstrap_interval(values)
    assert interval is not None
    assert interval == metrics.bootstrap_interval(values)
    assert interval != metrics.bootstrap_interval(values, seed=1)
    mean, error = statistics.fmean(values), statistics.stdev(values) / 20
    assert interval == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.25 * error)
    assert metrics.bootstrap_interval([1.0]) is None
    assert metrics.bootstrap_interval([1.0, 1.0]) == (1.0, 1.0)


def test_bootstrap_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    random = Random(9)
    hits = 0
    for _ in range(100):
        values = [float(random.random() < 0.3) for _ in range(60)]
        interval = metrics.bootstrap_interval(values, 0.9, resamples=300)
        assert interval is not None
        hits += interval[0] <= 0.3 <= interval[1]
    assert 80 <= hits <= 98
