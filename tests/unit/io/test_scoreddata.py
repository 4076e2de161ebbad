"""Scored groups as trajectory servers take them."""

from __future__ import annotations

import pytest

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.messages import Message, TokenSpan, user
from atropos_cli.domain.rollout import Rollout, token_sequences
from atropos_cli.domain.task import Task
from atropos_cli.errors import DataError
from atropos_cli.io.formats import atropos
from atropos_cli.io.scoreddata import received_group, scored_data


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
        "group_overrides": {"group_id": "a-0"},
        "overrides": None,
    }


def test_half_a_character_is_sent_as_utf_8() -> None:
    question, answer = rollout(7).messages
    half = rollout(7).model_copy(update={"messages": (question.model_copy(update={"content": "2 \ud800"}), answer)})
    sent = scored_data(group(half))
    assert sent is not None
    assert sent["messages"][0][0]["content"] == "2 \ufffd"


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


def marked(version: int | None, *, cut: bool = False) -> Rollout:
    one = rollout(7)
    question, answer = one.messages
    assert answer.tokens is not None
    tokens = answer.tokens.model_copy(update={"version": version})
    messages = (question, answer.model_copy(update={"tokens": tokens}))
    return one.model_copy(update={"messages": messages, "stop_reason": "length" if cut else "done"})


def test_a_group_that_was_sent_is_the_same_for_the_trainer() -> None:
    sent = group(marked(2), marked(3, cut=True))
    written = scored_data(sent)
    assert written is not None
    assert written["overrides"] == [
        {"weights_versions": [[None, 2], [2, 2]]},
        {"stop_reason": "length", "weights_versions": [[None, 2], [3, 2]]},
    ]
    got = received_group({**written, "env_id": 5, "advantages": None}, group_id="b-0.0", last=True)
    assert got.task.id == "5/a-0"
    assert got.task.prompt == (user("2+2"),)
    assert [one.reward for one in got.rollouts] == [1.0, 1.0]
    assert [one.truncated for one in got.rollouts] == [False, True]
    for before, after, version in zip(sent.rollouts, got.rollouts, (2, 3), strict=True):
        (old,), (new,) = token_sequences(before), token_sequences(after)
        assert (new.ids, new.mask, new.logprobs) == (old.ids, old.mask, old.logprobs)
        assert {v for v, on in zip(new.versions or (), new.mask, strict=True) if on} == {version}


def test_advantages_of_a_sequence_are_taken_where_its_tokens_share_one() -> None:
    written = scored_data(group(rollout(7), rollout(8)))
    assert written is not None
    for advantages, expected in (
        ([[0, 0, 0.5, 0.5], [0, 0, -1, -1]], (0.5, -1.0)),
        ([[0, 0, 0.5, 0.6], [0, 0, -1, -1]], None),
        ([[0.5], [-1]], None),
        ([[], [0, 0, -1, -1]], None),
    ):
        got = received_group({**written, "advantages": advantages}, group_id="b-0", last=True)
        assert got.advantages == expected


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tokens": [[1, 2, 3, -7], [1, 2, 3, 8]]}, "ids: Value error, token ids are integers from 0"),
        ({"tokens": ["abcd", "abcd"]}, r"tokens\[0\] is not a list"),
        ({"masks": [[-100, -100, 3, 7]]}, "masks: 1 for 2 sequences"),
        ({"masks": [[-100], [-100]]}, r"masks\[0\]: 1 for 4 tokens"),
        ({"scores": None}, "scores is not a list"),
        ({"overrides": [{"weights_versions": "x"}, {}]}, "weights_versions are not pairs"),
        ({"overrides": [{"weights_versions": [[1, "2"]]}, {}]}, "weights_versions are not pairs"),
        ({"scores": [1.0, float("nan")]}, "a score of nan"),
        ({"scores": [1.0, -1e200]}, r"a score of -1e\+200"),
        ({"inference_logprobs": [[1.0], [1.0]]}, r"inference_logprobs\[0\]: 1 for 4 tokens"),
        ({"overrides": [{"weights_versions": [["x", 4]]}, {}]}, "version: Input should be a valid integer"),
        ({"overrides": [{"stop_reason": "because"}, {}]}, "stop_reason: "),
        ({"overrides": ["x", None]}, "overrides: expected an object"),
        ({"generation_params": 7}, "generation_params: expected an object"),
    ],
)
def test_what_is_no_group_is_said(changes: dict[str, object], fault: str) -> None:
    written = scored_data(group(rollout(7), rollout(8)))
    with pytest.raises(DataError, match=f"not a scored group: {fault}"):
        received_group({**(written or {}), **changes}, group_id="b-0", last=True)


def test_a_number_is_no_group() -> None:
    with pytest.raises(DataError, match="int in the place of an object"):
        received_group(7, group_id="b-0", last=True)


@pytest.mark.parametrize("value", [None, float("nan"), float("-inf"), 0.5])
def test_a_sequence_with_an_impossible_logprob_has_none(value: float | None) -> None:
    written = scored_data(group(rollout(7), rollout(8)))
    assert written is not None
    changed = {**written, "inference_logprobs": [[1.0, 1.0, -0.5, value], [1.0, 1.0, -0.5, -0.25]]}
    got = received_group(changed, group_id="b-0", last=True)
    assert [sequence.logprobs for one in got.rollouts for sequence in token_sequences(one)] == [
        None,
        (0.0, 0.0, -0.5, -0.25),
    ]


def test_half_of_a_surrogate_pair_can_be_stored() -> None:
    written = scored_data(group(rollout(7), rollout(8)))
    assert written is not None
    said = [{"role": "user", "content": "\ud800?"}, {"role": "assistant", "content": "4"}]
    changed = {**written, "messages": [said, said], "group_overrides": {"group_id": "\ud800"}}
    got = received_group(changed, group_id="b-0", last=True)
    assert got.rollouts[0].messages[0].content == "\ufffd?"
    assert ScoredGroup.model_validate_json(got.model_dump_json()) == got


def test_messages_of_others_are_taken_where_they_can_be() -> None:
    written = scored_data(group(rollout(7), rollout(8)), temperature=0.7)
    assert written is not None
    said = [{"role": "user", "content": "2+2", "reward": None}, {"role": "assistant", "content": "4", "reward": 1.0}]
    got = received_group({**written, "messages": [said, [{"role": "nobody"}]]}, group_id="b-0", last=True)
    assert [[message.role for message in one.messages] for one in got.rollouts] == [
        ["user", "assistant"],
        ["assistant"],
    ]
    assert all(token_sequences(one) for one in got.rollouts)
    assert got.task.info == {"temperature": 0.7}
