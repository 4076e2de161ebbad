"""Advantages against the table of worked rows and their definitions."""

from __future__ import annotations

import case_tables
import pytest

from atropos_cli.rollout.advantages import advantages, grpo_advantage, rloo_advantage

OURS = {"grpo_advantage", "rloo_advantage"}


@pytest.mark.parametrize("row", case_tables.params("advantages", lambda row: row["fn"] in OURS))
def test_rows(row: dict[str, object]) -> None:
    arguments = dict(row["input"])  # type: ignore[call-overload]
    function = grpo_advantage if row["fn"] == "grpo_advantage" else rloo_advantage
    rewards = arguments.pop("rewards")
    if "kl_seq" in arguments:  # RLOO takes the KL penalty off the rewards beforehand
        beta = arguments.pop("beta")
        rewards = [r - beta * kl for r, kl in zip(rewards, arguments.pop("kl_seq"), strict=True)]
    got = function(rewards, **arguments)
    expected = row["expected"]
    assert isinstance(expected, list)
    assert [0.0 if g is None else g for g in got] == pytest.approx(expected, abs=row["tol"])


def test_an_unscored_member_has_no_advantage_and_moves_no_mean() -> None:
    assert advantages("dr_grpo", [1.0, None, 0.0]) == (0.5, None, -0.5)
    assert advantages("none", [1.0, 0.0]) is None


def test_rounding_noise_is_no_signal() -> None:
    assert advantages("grpo", [0.1 + 0.2, 0.3]) == (0.0, 0.0)
