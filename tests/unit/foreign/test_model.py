"""The engine's model for foreign environments: calls of tools in texts, replies of roles, and what is trained on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from atropos_cli.domain.messages import Message, TokenSpan, user
from atropos_cli.domain.plan import Sampling
from atropos_cli.foreign.matching import Sampled, joined_branches, shared_prompt, usage_of
from atropos_cli.foreign.model import EngineModel, message_of
from atropos_cli.ports.backend import Completion, Generation
from atropos_cli.ports.environment import GroupContext

CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
ASKED = {"messages": [{"role": "user", "content": "Look."}], "tools": TOOLS}


def completion(text: str) -> Completion:
    span = TokenSpan(ids=tuple(text.encode()), mask=True, logprobs=(-0.5,) * len(text))
    return Completion(
        message=Message(role="assistant", content=text, tokens=span), finish_reason="stop", completion_tokens=len(text)
    )


class Speaker:
    """Says one thing; keeps what it was asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[Sequence[Message]] = []

    async def sample(self, messages: Sequence[Message], *, n: int = 1, **rest: Any) -> Sequence[Generation]:
        self.asked.append(messages)
        return [Generation(completions=(completion(self.text),) * n, prompt_ids=(1, 2), prompt_tokens=2)]

    async def generate(self, messages: Sequence[Message], *, n: int = 1, **rest: Any) -> Sequence[Completion]:
        self.asked.append(messages)
        return [completion(self.text)] * n


class Context(Speaker):
    """The part of a group's context that is used here."""

    sampling = Sampling()
    seed = 1

    def __init__(self, text: str, **models: Speaker) -> None:
        super().__init__(text)
        self.models = models


def model(context: Context) -> EngineModel:
    return EngineModel(cast("GroupContext", context), number=0)


def test_a_call_in_a_text_is_read_once_and_goes_back_as_it_was_said() -> None:
    context = Context(CALL)
    engine = model(context)
    said = [asyncio.run(engine.chat(ASKED))["choices"][0] for _ in range(2)]
    assert [item["finish_reason"] for item in said] == ["tool_calls", "tool_calls"]
    assert len({item["tool_calls"][0]["id"] for item in said}) == 2
    reply = {"role": "assistant", "content": f" {CALL}\n", "tool_calls": said[0]["tool_calls"]}
    result = {"role": "tool", "tool_call_id": said[0]["tool_calls"][0]["id"], "content": "A door."}
    asyncio.run(engine.chat({**ASKED, "messages": [*ASKED["messages"], reply, result]}))
    assert context.asked[-1][1].tool_calls is None
    written = {**reply, "content": "I call it myself."}
    assert engine.as_sampled(message_of(written)).tool_calls is not None


def test_a_role_answers_and_is_not_trained_on() -> None:
    judge = Speaker(CALL)
    engine = model(Context("Yes.", judge=judge))
    said = asyncio.run(engine.chat(ASKED, role="judge"))
    assert said["choices"][0]["tool_calls"][0]["function"]["name"] == "look"
    assert "ids" not in said["choices"][0]
    assert (len(judge.asked), engine.exchanges) == (1, [])
    assert asyncio.run(engine.chat(ASKED))["choices"][0]["ids"] == list(b"Yes.")
    assert usage_of(engine.exchanges).model_dump(include={"requests", "prompt_tokens", "completion_tokens"}) == {
        "requests": 1, "prompt_tokens": 2, "completion_tokens": 4
    }  # fmt: skip


def test_only_what_was_sampled_for_these_messages_is_trained_on() -> None:
    engine = model(Context("Yes."))
    asyncio.run(engine.chat(ASKED))
    sampled = [user("Look."), Message(role="assistant", content="Yes.")]
    edited = [user("Look."), Message(role="assistant", content="Yes, sir.")]
    for branch, trained in ((sampled, True), (edited, False), ([user("Look!"), sampled[1]], False)):
        messages, made_by = joined_branches([branch], Sampled(engine.exchanges))
        assert (messages[-1].tokens is not None, len(made_by)) == (trained, int(trained))


def test_the_prompt_is_what_all_conversations_begin_with() -> None:
    begun = [Message(role="system", content="Be brief."), user("1?")]
    other = [begun[0], user("2?"), Message(role="assistant", content="2")]
    assert shared_prompt([[*begun, Message(role="assistant", content="1")], begun, []]) == tuple(begun)
    assert shared_prompt([begun, other]) == tuple(begun[:1])
    assert shared_prompt([]) == ()
