"""A reward that has no value for a rollout: nothing is lost where its weight is 0, and nothing is made up."""

from __future__ import annotations

import asyncio

import pytest

from atropos_cli.rollout.scoring import Scorer
from atropos_cli.sdk import Reward, Rollout, Task, Unscored


def right(task: Task, rollout: Rollout) -> float:
    return 1.0


def label(task: Task, rollout: Rollout) -> float:
    if rollout.id == "b":
        raise Unscored("a text that is no number")
    return 0.5


def broken(task: Task, rollout: Rollout) -> float:
    raise KeyError("x")


def scored(*rewards: Reward) -> list[Rollout]:
    rollouts = [Rollout(id=name, task_id="t", messages=()) for name in ("a", "b")]
    return list(asyncio.run(Scorer(rewards).score(Task(id="t"), rollouts)))


def test_with_the_weight_0_it_is_left_out() -> None:
    first, second = scored(Reward(right), Reward(label, weight=0.0))
    assert (first.rewards, first.reward) == ({"right": 1.0, "label": 0.5}, 1.0)
    assert (second.rewards, second.reward, second.failure) == ({"right": 1.0}, 1.0, None)


def test_the_only_reward_always_counts() -> None:
    first, second = scored(Reward(label, weight=0.0))
    assert first.rewards == {"label": 0.5}
    assert second.failure is not None


@pytest.mark.parametrize("reward", [Reward(label, weight=-0.5), Reward(broken, weight=0.0)])
def test_else_the_rollout_fails(reward: Reward) -> None:
    _, second = scored(Reward(right), reward)
    assert second.failure is not None
    assert second.reward is None
