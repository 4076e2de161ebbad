"""Tool calls of replies: read once, by the engine, for the episode and for the counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import Message
from atropos_cli.text.toolcalls import ToolParse, parse_tool_calls

TOOLS = "tools"
"""The key of `task.info` under which readers of groups look for the tools."""


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A reply as the episode gets it. fault: why no call of it may be executed. failures: kinds, one for each."""

    message: Message
    fault: str | None = None
    failures: tuple[str, ...] = ()


def read_reply(reply: Message, tools: Sequence[JsonDict] | None, number: int) -> ReadReply:
    """The reply with its calls, read from where they are. number: of the next call of the episode, for ids.

    Without tools it stays as it is. The engine records the reply as the server gave it: its tokens belong to that text.
    """
    if not tools:
        return ReadReply(reply)
    parse = _parse(reply, tools)
    if parse.status == "error":
        fault = parse.error or "invalid_json"
        return ReadReply(_numbered(reply) if reply.tool_calls else reply, fault, (fault,))
    if parse.status == "none":
        return ReadReply(reply)
    failures = tuple(problem.partition(":")[0] for problem in parse.validation_errors)
    if reply.tool_calls:
        return ReadReply(_numbered(reply), None, failures)
    calls = tuple(call.as_tool_call(f"call_{number + place}") for place, call in enumerate(parse.calls))
    return ReadReply(reply.replace(tool_calls=calls), None, failures)


def _numbered(reply: Message) -> Message:
    """The reply with an id for each call of a server that gave none, as the next request will name them."""
    calls = [call if call.id else call.replace(id=f"call_{place}") for place, call in enumerate(reply.tool_calls or ())]
    made: Message = reply.replace(tool_calls=tuple(calls))
    return made


def _parse(reply: Message, tools: Sequence[JsonDict]) -> ToolParse:
    if reply.tool_calls:
        calls = [call.model_dump(mode="json") for call in reply.tool_calls]
        return parse_tool_calls({"tool_calls": calls}, "openai", tools=tools)
    return parse_tool_calls(reply.text, "auto", tools=tools)


def joined(offered: Sequence[JsonDict], more: Sequence[JsonDict]) -> tuple[JsonDict, ...]:
    """All tools that were offered, each once, in order of appearance."""
    return (*offered, *(tool for tool in more if tool not in offered))
