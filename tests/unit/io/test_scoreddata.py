"""Scored groups as trajectory servers take them."""

from __future__ import annotations

import pytest

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.messages import Message, TokenSpan, user
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.errors import DataError
from atropos_cli.io.formats import atropos
from atropos_cli.io.scoreddata import scored_data


def rollout(number: int, reward: float | None = 1.0, logprobs: tuple[float, ...] | None = (-0.5, -0.25)) -> Rollout:
    question = Message(role="user", content="2+2", tokens=TokenSpan(ids=(1, 2)))
    answer = Message(role="assistant", content="4", tokens=TokenSpan(ids=(3, number), mask=True, logprobs=logprobs))
    return Rollout(id=f"r{number}", task_id="t", messages=(question, answer), reward=reward)


def group(*rollouts: Rollout) -> ScoredGroup:
    return ScoredGroup(group_id="a-0", env="e", task=Task(id="t", prompt=(user("2+2"),)), rollouts=rollouts, model="m")


def test_a_group_as_parallel_lists() -> None:
    assert scored_data(group(rollout(7), rollout(8, 0.0)), temperature=0.7) == {
        "tokens": [[1, 2, 3, 7], [1, 2, 3, 8]],
        "masks": [[-100, -100, 3, 7], [-100, -100, 3, 8]],
        "scores": [1.0, 0.0],
        "messages": [[{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]] * 2,
        "inference_logprobs": [[1.0, 1.0, -0.5, -0.25]] * 2,
        "generation_params": {"temperature": 0.7},
        "group_overrides": {},
        "overrides": None,
    }


def test_what_is_written_is_read_back() -> None:
    written = scored_data(group(rollout(7), rollout(8, 0.0)))
    assert written is not None
    assert atropos.matches(written)
    found = atropos.read(written, "x", 1)
    assert [one.score for one in found.rollouts] == [1.0, 0.0]


def test_unknown_logprobs_are_left_out() -> None:
    written = scored_data(group(rollout(7), rollout(8, logprobs=None)))
    assert written is not None
    assert written["inference_logprobs"] is None


def test_a_group_with_a_failed_rollout_is_none() -> None:
    assert scored_data(group(rollout(7), rollout(8, None))) is None


def test_rollouts_without_tokens() -> None:
    plain = Rollout(id="r", task_id="t", messages=(user("2+2"), Message(role="assistant", content="4")), reward=1.0)
    with pytest.raises(DataError, match="without token ids"):
        scored_data(group(plain))


def test_a_group_with_an_empty_reply_is_none() -> None:
    question = Message(role="user", content="2+2", tokens=TokenSpan(ids=(1, 2)))
    answer = Message(role="assistant", content="", tokens=TokenSpan(ids=(), mask=True))
    empty = Rollout(id="r", task_id="t", messages=(question, answer), reward=0.0)
    assert scored_data(group(rollout(7), empty)) is None


def test_a_group_whose_messages_are_an_empty_list_has_tokens_alone() -> None:
    raw = {"tokens": [[1, 2], [1, 3]], "masks": [[-100, 2], [-100, 3]], "scores": [1.0, 0.0], "messages": []}
    found = atropos.read(raw, "x", 1)
    assert [one.score for one in found.rollouts] == [1.0, 0.0]
    assert [list(sequence.ids) for one in found.rollouts for sequence in one.read_tokens(one)] == [[1, 2], [1, 3]]
