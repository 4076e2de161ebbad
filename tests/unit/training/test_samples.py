"""Rows of the records: what they show as the extracted answer, and whether it was right."""

from __future__ import annotations

import json
from typing import Any

import pytest
from atropos_authoring.helpers import make_rollout

from atropos_cli.domain.refs import RewardRef
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.evaluation.evaluation import Judge, success_threshold
from atropos_cli.plugins.registry import Registry
from atropos_cli.rollout.references import component_rewards
from atropos_cli.sdk import Reward, group_reward, reward, user
from atropos_cli.training.samples import MOST_EXTRACTED, sample_row

TASK = Task(id="t", prompt=(user("What is 1 + 2?"),), answer=3)


def last_word(task: Task, rollout: Rollout) -> str:
    return rollout.text.split()[-1]


@reward(extract=last_word)
def right(task: Task, rollout: Rollout) -> float:
    """1 for the right last word."""
    return float(last_word(task, rollout) == str(task.answer))


@reward(weight=0.5)
def short(task: Task, rollout: Rollout) -> float:
    """1 for few words."""
    return float(len(rollout.text) < 20)


def rollout(reply: str = "It is 3", scored: float | None = 1.0, **info: Any) -> Rollout:
    made: Rollout = make_rollout(reply, task=TASK).replace(reward=scored, info=info)
    return made


def test_a_row_shows_what_the_first_reward_that_extracts_reads() -> None:
    row = sample_row(TASK, rollout(), (short, right, Reward(right.fn, extract=lambda task, rollout: "never")))
    assert row["extracted"] == "3"
    assert (row["completion"], row["expected"], row["reward"]) == ("It is 3", 3, 1.0)
    assert sample_row(TASK, rollout())["extracted"] is None
    assert sample_row(TASK, rollout(), (short,))["extracted"] is None


def test_the_episode_has_the_first_word_on_what_was_extracted() -> None:
    assert sample_row(TASK, rollout(extracted=7), (right,))["extracted"] == 7
    assert sample_row(TASK, rollout(extracted=None), (right,))["extracted"] is None


@pytest.mark.parametrize("reply", ["", "  "])
def test_an_extraction_that_breaks_shows_nothing(reply: str) -> None:
    with pytest.raises(IndexError):
        last_word(TASK, rollout(reply))
    assert sample_row(TASK, rollout(reply), (right,))["extracted"] is None


def test_long_and_strange_extractions_become_bounded_json() -> None:
    long = sample_row(TASK, rollout("x" * 50_000), (right,))["extracted"]
    assert isinstance(long, str)
    assert long.startswith("x" * MOST_EXTRACTED)
    assert len(long) < MOST_EXTRACTED + 100
    endless: list[Any] = []
    endless.append(endless)
    for value in ({"a": [1]}, float("nan"), Task, "\ud800", endless):
        given = Reward(right.fn, extract=lambda task, rollout, value=value: value)
        json.dumps(sample_row(TASK, rollout(), (given,)), allow_nan=False).encode()


@pytest.mark.parametrize(
    ("scored", "info", "rewards", "correct"),
    [
        (1.5, {}, (right, short), True),
        (1.0, {}, (right, short), False),  # a full mark is the sum of the weights
        (1.0, {}, (right, short.with_weight(0)), True),
        (0.0, {"won": True}, (right,), True),
        (1.0, {"success": False}, (right,), False),
        (1.0, {"correct": 1}, (right,), True),  # a count is no verdict
        (1.0, {"won": False}, (), False),
        (1.0, {}, (), None),
        (None, {}, (right,), None),
    ],
)
def test_correct_is_what_an_evaluation_would_count(
    scored: float | None, info: dict[str, Any], rewards: tuple[Reward, ...], correct: bool | None
) -> None:
    made = rollout(scored=scored, **info)
    assert sample_row(TASK, made, rewards)["correct"] is correct
    if rewards and scored is not None:
        assert Judge(None, success_threshold(rewards), {})(made) is correct


def test_a_reward_keeps_its_extraction_when_it_is_made_anew() -> None:
    @group_reward(name="best", extract=last_word)
    def best(task: Task, rollouts: list[Rollout]) -> list[float]:
        """1 for all."""
        return [1.0] * len(rollouts)

    assert right.with_weight(0.1).extract is last_word
    assert best.with_weight(0.1).extract is last_word
    assert short.extract is None
    refs = [RewardRef(name="best", weight=2.0), RewardRef(name="right", weight=0.0)]
    made = component_rewards(refs, {"best": best, "right": right}, Registry())
    assert [(item.name, item.weight, item.kind, item.extract) for item in made] == [
        ("best", 2.0, "group", last_word),
        ("right", 0.0, "rollout", last_word),
    ]
