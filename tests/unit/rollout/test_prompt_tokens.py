"""Tokens of prompts: generate() hands them over, and a sequence without them is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from atropos_cli.domain.rollout import token_sequences
from atropos_cli.rollout.tokens import known_ids, with_prompt
from atropos_cli.sdk import Message, Rollout, TokenSequence, TokenSpan, assistant, user
from atropos_cli.sdk.backends import Completion, Generation


def generation(prompt: Sequence[int] | None, *replies: Sequence[int]) -> Generation:
    completions = tuple(
        Completion(
            message=assistant("x").replace(tokens=TokenSpan(ids=tuple(ids), mask=True, logprobs=(-0.5,) * len(ids))),
            finish_reason="stop",
        )
        for ids in replies
    )
    return Generation(completions=completions, prompt_ids=None if prompt is None else tuple(prompt))


def sequences(*messages: Message) -> tuple[TokenSequence, ...]:
    return token_sequences(Rollout(id="r", task_id="t", messages=messages))


def test_generate_hands_over_the_prompts_ids() -> None:
    for prompt, replies in (([1, 2, 3], [[7], [8, 9]]), ([5], [[1, 1, 1]]), (list(range(50)), [[2, 4], [6], [8]])):
        for completion, reply in zip(with_prompt(generation(prompt, *replies), [user("q")]), replies, strict=True):
            (sequence,) = sequences(user("q"), completion.message)
            assert sequence.whole
            assert list(sequence.ids) == [*prompt, *reply]
            assert list(sequence.mask) == [False] * len(prompt) + [True] * len(reply)
            assert sequence.logprobs == (0.0,) * len(prompt) + (-0.5,) * len(reply)


def test_later_turns_repeat_nothing_and_rewritten_history_begins_anew() -> None:
    (first,) = with_prompt(generation([1, 2], [3, 4]), [user("q")])
    history = [user("q"), first.message, user("more")]
    (second,) = with_prompt(generation([1, 2, 3, 4, 5], [6]), history)
    assert known_ids([*history, second.message]) == (1, 2, 3, 4, 5, 6)
    (sequence,) = sequences(*history, second.message)
    assert sequence.ids == (1, 2, 3, 4, 5, 6)
    assert sequence.mask == (False, False, True, True, False, True)
    (other,) = with_prompt(generation([1, 9], [6]), history)
    assert [found.ids for found in sequences(*history, other.message)] == [(1, 2, 3, 4), (1, 9, 6)]


def test_what_a_server_does_not_say_is_not_made_up() -> None:
    (completion,) = with_prompt(generation(None, [3, 4]), [user("q")])
    (sequence,) = sequences(user("q"), completion.message)
    assert sequence.ids == (3, 4)
    assert not sequence.whole
    plain = Generation(completions=(Completion(message=assistant("x"), finish_reason="stop"),), prompt_ids=(1, 2))
    assert with_prompt(plain, [user("q")])[0].message.tokens is None


@pytest.mark.parametrize(("mask", "whole"), [((False, True), True), ((True, False), False), ((True, True), False)])
def test_a_sequence_is_whole_where_its_first_token_is_untrained(mask: tuple[bool, ...], whole: bool) -> None:
    assert TokenSequence(ids=(1, 2), mask=mask, logprobs=None).whole is whole
