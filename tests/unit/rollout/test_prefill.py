"""Replies that begin with a given text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.rollout import Rollout, token_sequences
from atropos_cli.errors import FatalBackendError
from atropos_cli.sdk import Episode, SingleTurn, Task, TokenSpan
from atropos_cli.sdk.backends import Capabilities

from .support import Adding, Bench, Counting, say


class Prefilled(Adding):
    name = "prefilled"

    def episode(self, task: Task) -> Episode:
        episode = SingleTurn(task)
        episode.prefill = "<think>\n"
        return episode


class PrefilledTurns(Adding):
    name = "prefilled-turns"

    def episode(self, task: Task) -> Episode:
        episode = Counting(task)
        episode.prefill = "Move: "
        return episode


@pytest.fixture
def able(tmp_path: Path) -> Bench:
    """A bench whose backend can continue replies, and gives tokens: the prefill's are 7 and 8 of the prompt."""
    bench = Bench(tmp_path / "run")
    original = bench.backend.open

    async def opened(self: Any, **options: Any) -> None:
        await original(self, **options)
        self.capabilities = Capabilities(n=True, token_ids=True, logprobs=True, prefill=True, choices=True)

    bench.backend.open = opened  # type: ignore[method-assign]

    def answer(request: Any) -> Any:
        tokens = TokenSpan(ids=(9,), mask=True, logprobs=(-0.5,))
        return say("2", n=request.n, tokens=tokens).model_copy(update={"prompt_ids": (1, 7, 8)})

    bench.answer(answer)
    return bench


@pytest.mark.parametrize("group_size", [1, 2])
def test_the_reply_is_whole_and_the_prefix_is_not_trained_on(able: Bench, group_size: int) -> None:
    able.use(Prefilled)
    able.run(able.plan(limit=1, group_size=group_size))
    assert {request.prefill for request in able.requests} == {"<think>\n"}
    assert [message.role for message in able.requests[0].messages] == ["user"]
    for item in able.groups()[0]["rollouts"]:
        rollout = Rollout.model_validate(item)
        assert rollout.text == "<think>\n2"
        assert [message.role for message in rollout.messages] == ["user", "assistant"]
        (sequence,) = token_sequences(rollout)
        assert sequence.ids == (1, 7, 8, 9)
        assert sequence.mask == (False, False, False, True)


def test_each_turn_begins_with_it(able: Bench) -> None:
    able.use(PrefilledTurns)
    able.run(able.plan(limit=1, group_size=1))
    rollout = Rollout.model_validate(able.groups()[0]["rollouts"][0])
    assert [message.text for message in rollout.messages if message.role == "assistant"] == ["Move: 2"] * 3


def test_a_backend_that_cannot_is_told_so_before_it_is_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run")
    bench.use(Prefilled)
    with pytest.raises(FatalBackendError, match="cannot continue an unfinished reply") as caught:
        bench.run(bench.plan(limit=1))
    assert "--prefill" in str(caught.value.hint)
    assert bench.requests == []


class Held(Adding):
    name = "held"

    def episode(self, task: Task) -> Episode:
        episode = Counting(task)
        episode.choices = ("2", "three")
        return episode


@pytest.mark.parametrize("group_size", [1, 2])
def test_each_turn_may_be_held_to_given_replies(able: Bench, group_size: int) -> None:
    able.use(Held)
    able.run(able.plan(limit=1, group_size=group_size))
    assert {request.choices for request in able.requests} == {("2", "three")}


def test_a_backend_that_cannot_be_held_to_replies_is_told_so_before_it_is_asked(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "run")
    bench.use(Held)
    original = bench.backend.open

    async def opened(self: Any, **options: Any) -> None:
        await original(self, **options)
        self.capabilities = Capabilities(n=True)

    bench.backend.open = opened  # type: ignore[method-assign]
    with pytest.raises(FatalBackendError, match="cannot choose among given replies") as caught:
        bench.run(bench.plan(limit=1))
    assert "--pick-from-admissible" in str(caught.value.hint)
    assert bench.requests == []
