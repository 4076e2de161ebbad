"""How replies end, and what stands for a reply without text: counted, told once, in one form."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.sdk import FunctionCall, Message, ToolCall, user

from .openai_support import ask, chat, opened


def reply(reason: Any, content: str = "x") -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content}, "finish_reason": reason}


async def test_unknown_finish_reasons_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    script = [chat(reply(reason)) for reason in ("gremlins", "SAFETY", "pause\u0007", "MAX_TOKENS")]
    with caplog.at_level(logging.WARNING), MockServer(script) as server:
        async with opened(server) as backend:
            found = [(await backend.generate(ask())).completions[0].finish_reason for _ in script]
            assert backend.describe()["counts"]["unknown_finish_reason"] == 2
    assert found == ["gremlins", "content_filter", "pause\u0007", "length"]
    told = [record.message for record in caplog.records if "not known" in record.message]
    assert len(told) == 1
    assert "'gremlins'" in told[0]


@pytest.mark.parametrize(
    ("used", "reason", "counted"), [(16, "stop", 1), (16, "END_TURN", 1), (15, "stop", 0), (16, "length", 0)]
)
async def test_a_reply_that_stops_exactly_at_max_tokens(
    used: int, reason: str, counted: int, caplog: pytest.LogCaptureFixture
) -> None:
    usage = {"completion_tokens": used}
    with caplog.at_level(logging.WARNING), MockServer([chat(reply(reason), usage=usage)] * 2) as server:
        async with opened(server) as backend:
            for _ in range(2):
                await backend.generate(ask(max_tokens=16))
            assert backend.describe()["counts"].get("stopped_at_max_tokens", 0) == 2 * counted
    assert sum("max_tokens (16)" in record.message for record in caplog.records) == counted


async def test_several_replies_that_all_stop_at_max_tokens() -> None:
    with MockServer([chat("a", "b", "c", usage={"completion_tokens": 24})]) as server:
        async with opened(server) as backend:
            await backend.generate(ask(n=3, max_tokens=8))
            assert backend.describe()["counts"]["stopped_at_max_tokens"] == 3


CALL = (ToolCall(id="c1", function=FunctionCall(name="move")),)
HISTORY = (
    user("go"),
    Message(role="assistant", content=None, tool_calls=CALL),
    Message(role="tool", content="a hall", tool_call_id="c1"),
    Message(role="assistant", content="", tool_calls=CALL),
    Message(role="tool", content="a cave", tool_call_id="c1"),
    Message(role="assistant", content=None),
    user("on"),
)


def refusing(message: str, status: int = 400) -> Any:
    """A server that takes no null."""

    def handler(request: Any) -> dict[str, Any] | None:
        body = request.json or {}
        refuses = any(turn.get("content", "") is None for turn in body.get("messages", ()))
        return {"status": status, "json": {"error": {"message": message}}} if refuses else None

    return handler


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("Expected 'content' to be string or array", 400),
        ("messages.1.content: Input should be a valid string", 422),
        ("invalid message content type: <nil>", 400),
        ("data did not match any variant of untagged enum MessageContent", 422),
        ('can only concatenate str (not "NoneType") to str', 500),
    ],
)
async def test_null_content_is_sent_in_one_form_and_empty_to_servers_that_refuse_it(message: str, status: int) -> None:
    with MockServer(handler=refusing(message, status)) as server:
        async with opened(server) as backend:
            for _ in range(2):
                await backend.generate(ask().replace(messages=HISTORY))
    sent = [[turn["content"] for turn in request.json["messages"]] for request in server.generations]
    assert sent[0] == ["go", None, "a hall", None, "a cave", "", "on"]
    assert sent[1:] == [["go", "", "a hall", "", "a cave", "", "on"]] * 2
