"""Health rules: each trouble is named, with a hint, once per spell; stop rules end the run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from atropos_training.health import RULES, Health, HealthRules, HealthWarning

from atropos_cli.errors import TrainerError

GOOD = {"loss": 0.1, "grad_norm": 1.0, "reward": 0.5, "frac_reward_zero_std": 0.1, "completions/clipped_ratio": 0.0}


def run(health: Health, rows: Iterable[dict], first: int = 1) -> list[HealthWarning]:
    return [warning for step, row in enumerate(rows, start=first) for warning in health.observe(step, row)]


def test_a_healthy_run_is_silent() -> None:
    rows = [{**GOOD, "reward": step / 50, "kl": 0.01, "entropy": 1 - step / 100} for step in range(50)]
    assert run(Health(), rows) == []


def test_equal_rewards_are_named_once_per_spell() -> None:
    """Field case F04: sixteen prompts, all rewards 0."""
    bad = {**GOOD, "reward": 0.0, "loss": 0.0, "grad_norm": 0.0, "frac_reward_zero_std": 1.0}
    health = Health(HealthRules(zero_std_steps=3))
    found = run(health, [bad] * 8)
    assert [(w.rule, w.step) for w in found] == [("zero-std", 3)]
    assert "100% of the groups had equal rewards for 3 steps (mean reward 0)" in found[0].message
    for cause in ("form that the reward reads", "cut", "too hard"):
        assert cause in found[0].hint
    assert run(health, [*[GOOD] * 7, *[bad] * 3], 9) == []  # about the limit: not told at each crossing
    assert run(health, [GOOD] * 10, 19) == []
    assert [w.step for w in run(health, [bad] * 4, 29)] == [31]
    assert health.counts == {"zero-std": 2}


def test_equal_rewards_may_stop_the_run() -> None:
    health = Health(HealthRules(zero_std_steps=2, stop=("zero-std",)), last_good=lambda: "checkpoints/step-40")
    bad = {**GOOD, "frac_reward_zero_std": 1.0}
    health.observe(1, bad)
    with pytest.raises(
        TrainerError, match=r"step 2 by the rule zero-std: 100% .* last checkpoint is checkpoints/step-40"
    ):
        health.observe(2, bad)


def test_cut_completions_are_named_from_the_first_step_with_the_limit() -> None:
    """Field case F05."""
    (found,) = run(Health(limit=256), [{**GOOD, "completions/clipped_ratio": 1.0}] * 3)
    assert (found.rule, found.step) == ("truncated", 1)
    assert found.message == "100% of the completions were cut at the limit of 256 tokens"
    assert "--max-tokens" in found.hint


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_non_finite_warns_and_stops_when_it_lasts(bad: float | None) -> None:
    """Field case F08."""
    health = Health(HealthRules(nonfinite_steps=3), last_good=lambda: "checkpoints/step-4")
    assert [w.rule for w in run(health, [{**GOOD, "loss": bad}])] == ["non-finite"]
    assert run(health, [GOOD] * 10, 2) == []
    assert [w.message for w in run(health, [{**GOOD, "grad_norm": bad}], 12)] == ["grad_norm not finite at this step"]
    assert run(health, [{**GOOD, "loss": bad}], 13) == []
    with pytest.raises(TrainerError, match="loss not finite for 3 steps in a row; the last checkpoint is") as stopped:
        health.observe(14, {**GOOD, "loss": bad})
    assert stopped.value.hint is not None
    assert "--learning-rate" in stopped.value.hint


def test_kl_explosion() -> None:
    rows = [{**GOOD, "kl": value} for value in (0.1, 3.0, 0.2, 2.0, 2.0, 2.5)]
    (found,) = run(Health(), rows)
    assert (found.rule, found.step) == ("kl", 6)
    assert "2.5 nats" in found.message


def test_entropy_collapse_is_relative_to_the_first_steps() -> None:
    rows = [{**GOOD, "entropy": value} for value in [2.0] * 5 + [0.5] * 10 + [0.1] * 5]
    (found,) = run(Health(), rows)
    assert (found.rule, found.step) == ("entropy", 20)
    assert "fell to 0.1 from 2" in found.message


def test_an_entropy_of_zero_from_the_start_is_no_collapse() -> None:
    assert run(Health(), [{**GOOD, "entropy": 0.0}] * 30) == []


def test_plateau() -> None:
    rules = HealthRules(plateau_steps=5)
    growing = [{**GOOD, "reward": step * 0.05} for step in range(15)]
    flat = [{**GOOD, "reward": 0.7}] * 12
    (found,) = run(Health(rules), growing + flat)
    assert found.rule == "plateau"
    assert 20 < found.step < 26  # the mean of five stops growing some steps after the reward does
    assert "0.7" in found.message


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_can_be_put_off(rule: str) -> None:
    bad = {
        "loss": None,
        "frac_reward_zero_std": 1.0,
        "completions/clipped_ratio": 1.0,
        "kl": 9.0,
        "entropy": 0.0,
        "reward": 0.0,
    }
    rows = [{**bad, "entropy": 2.0}] * 5 + [bad] * 45

    def spoken(off: tuple) -> set[str]:
        rules = HealthRules(off=off, nonfinite_steps=1000, plateau_steps=10)
        return {warning.rule for warning in run(Health(rules), rows)}

    assert spoken(()) == set(RULES)
    assert spoken((rule,)) == set(RULES) - {rule}


def test_missing_metrics_are_no_trouble() -> None:
    assert run(Health(), [{}] * 300) == []


def test_a_resumed_run_does_not_repeat_itself() -> None:
    bad = {**GOOD, "frac_reward_zero_std": 1.0}
    rules = HealthRules(zero_std_steps=3, nonfinite_steps=2)
    health = Health(rules)
    health.replay(
        [(1, bad), (2, bad), (3, bad), (4, {**bad, "loss": None}), (5, {**bad, "loss": None})]
    )  # it ended here
    assert run(health, [bad, bad], 6) == []
    assert [w.rule for w in run(Health(rules), [bad] * 3, 6)] == ["zero-std"]
    assert run(health, [{**bad, "loss": None}], 8) == []
    with pytest.raises(TrainerError, match="for 2 steps in a row"):
        health.observe(9, {**bad, "loss": None})
