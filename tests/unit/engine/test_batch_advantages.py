"""Batch advantages and reward shaping, against the shared rows and their definitions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.engine import batch_advantages, reward_shaping
from atropos_cli.engine.batch_advantages import RoleBaselines, beta_pdf, bnpo_beta_advantage, rae

ROWS = Path(__file__).resolve().parents[3].parent / "shared" / "cases" / "advantages.jsonl"
ELSEWHERE = {"grpo_advantage", "rloo_advantage", "policy_loss"}


def rows() -> list[Any]:
    if not ROWS.exists():
        return [pytest.param(None, marks=pytest.mark.skip("needs ../shared/cases/advantages.jsonl"))]
    cases = map(json.loads, ROWS.read_text().splitlines())
    return [pytest.param(row, id=row["id"]) for row in cases if row["fn"] not in ELSEWHERE]


def computed(fn: str, given: dict[str, Any]) -> Any:
    """The row's function called with the row's input, its result as plain JSON."""
    if fn == "rae":
        baselines = RoleBaselines(given["alpha"], given["order"], given["init"])
        advantages = rae(given["episodes"], baselines)
        return {"advantages": advantages, "baselines": {"|".join(key): b for key, b in baselines.values.items()}}
    if fn == "latro_advantage":
        policy, reference = given.pop("rationale_logprob_sum"), given.pop("rationale_ref_logprob_sum")
        given["log_ratio"] = [a - b for a, b in zip(policy, reference, strict=True)]
    if fn == "latro_reward":
        given.pop("completion_logprobs")  # there to be ignored
    module = batch_advantages if hasattr(batch_advantages, fn) else reward_shaping
    result = getattr(module, fn)(**given)
    return result._asdict() if hasattr(result, "_asdict") else result


def assert_close(got: Any, expected: Any, tol: float) -> None:
    if isinstance(expected, dict):
        assert got.keys() == expected.keys()
        for key in expected:
            assert_close(got[key], expected[key], tol)
    elif isinstance(expected, list):
        assert len(got) == len(expected)
        for one, two in zip(got, expected, strict=True):
            assert_close(one, two, tol)
    else:
        assert got == pytest.approx(expected, abs=tol)


@pytest.mark.parametrize("row", rows())
def test_row(row: dict[str, Any]) -> None:
    expected = row["expected"]
    if isinstance(expected, dict) and "error" in expected:
        with pytest.raises(ValueError) as failure:
            computed(row["fn"], dict(row["input"]))
        assert failure.value.code == expected["error"]  # type: ignore[attr-defined]
        return
    assert_close(computed(row["fn"], dict(row["input"])), expected, row["tol"])


@pytest.mark.parametrize(
    ("groups", "why"),
    [([[1, 0]], "one group has no variance"), ([[1, 0], [0, 1]], "groups of one mean"), ([], "nothing at all")],
)
def test_beta_falls_back_to_plain_centring(groups: list[list[float]], why: str) -> None:
    result = bnpo_beta_advantage(groups)
    assert (result.alpha, result.beta) == (1.0, 1.0), why
    assert result.advantages == [[reward - 0.5 for reward in group] for group in groups]


def test_beta_wants_rewards_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        bnpo_beta_advantage([[2.0, 0.0], [1.0, 0.0]])
    with pytest.raises(ValueError, match="empty"):
        bnpo_beta_advantage([[]])


def test_an_all_right_group_at_the_edge_of_the_density_stays_zero_and_finite() -> None:
    result = bnpo_beta_advantage([[1, 1], [1, 0], [1, 1, 1, 0], [0.4, 0.4]])
    assert result.advantages[0] == [0.0, 0.0]
    assert all(math.isfinite(value) for group in result.advantages for value in group)


def test_the_density_integrates_to_one() -> None:
    n = 20_000
    assert sum(beta_pdf((i + 0.5) / n, 1.5, 2.7) for i in range(n)) / n == pytest.approx(1.0, abs=1e-4)
    assert beta_pdf(0.0, 1.0, 3.0) == pytest.approx(3.0)
    assert beta_pdf(1.0, 1.0, 3.0) == 0.0


def test_the_papers_order_is_alpha_times_the_codes() -> None:
    episodes = [{"game": "g", "rewards": {"0": reward}} for reward in (1, 1, -1, 0.5)]
    code = rae(episodes, RoleBaselines())
    paper = rae(episodes, RoleBaselines(order="update_then_subtract"))
    assert paper == pytest.approx([0.95 * value for value in code])


def test_latro_guards() -> None:
    with pytest.raises(ValueError, match="above 0"):
        batch_advantages.latro_advantage([0.5], [0.0])
    with pytest.raises(ValueError, match="penalty"):
        batch_advantages.latro_advantage([-1.0], [0.0], truncation_multiplier=0.5)
    assert batch_advantages.latro_reward([-1.0, -2.0], "mean") == -1.5
    assert batch_advantages.latro_advantage([-3.0], [0.0]).advantage == [0.0]


def test_overlong_without_a_cache_is_a_step() -> None:
    assert [reward_shaping.soft_overlong(n, 100, 0) for n in (99, 100, 101)] == [0.0, 0.0, -1.0]
    with pytest.raises(ValueError, match="cache"):
        reward_shaping.soft_overlong(1, 10, 20)


def test_k3_is_never_negative_even_for_tiny_differences() -> None:
    assert all(reward_shaping.kl_estimators(-1.0 + d, -1.0).k3 >= 0 for d in (1e-9, -1e-9, 1e-12, 0.3, -0.3))


def test_credit_needs_a_score_for_each_turn() -> None:
    with pytest.raises(ValueError, match="2 step scores for 1 turns"):
        reward_shaping.credit_assignment([0.0], 1.0, 0.9, [0.1, 0.2])
