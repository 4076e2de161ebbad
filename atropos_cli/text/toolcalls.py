"""Read tool calls out of a completion: what was called, how clean it was, what had to be repaired.

    parse = parse_tool_calls(text, "hermes", tools=tools)
    if parse.status == "ok":
        run(parse.calls)

Formats: hermes (<tool_call>{...}</tool_call>), json (an object or list of objects in the text),
openai (a message with `tool_calls`, as JSON text or as a mapping), python (calls with literal
arguments in a ```python block), react ("Action:" with JSON, or "Action:" and "Action Input:").

Thinking and memory blocks are left out before calls are looked for. JSON is decoded from its first
brace, so that a closing tag inside a string does no harm. Nothing is evaluated, cut-off JSON is never
completed, and one broken call makes the whole completion an error: half of it must not be executed.
Whatever the text is, nothing is raised and the time is linear in its length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from atropos_cli.domain.base import clean_text
from atropos_cli.text.toolparsing.formats import OPEN_TAG, READERS, read_openai
from atropos_cli.text.toolparsing.found import Found, ParsedCall, ToolParse, walk

__all__ = ["ParsedCall", "ToolFormat", "ToolParse", "parse_tool_calls"]

ToolFormat = Literal["hermes", "json", "openai", "python", "react"]


def parse_tool_calls(
    output: str | Mapping[str, Any] | None,
    format: ToolFormat = "hermes",
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    fallback: ToolFormat | None = None,
) -> ToolParse:
    """The tool calls in a completion. A format that does not exist is a ValueError; nothing else is raised.

    tools: OpenAI tool definitions, or short ones ({"name", "properties", "required"}); used to check
    calls, and to name positional arguments of the python format. fallback: a second format to try when
    the first finds no call; what it finds carries the warning tool_call_in_text. For openai it reads
    the message's content, and unread tags in it give the same warning.
    """
    for name in (format, fallback):
        if name is not None and name not in get_args(ToolFormat):
            raise ValueError(f"unknown tool-call format {name!r}; known: {', '.join(get_args(ToolFormat))}")
    found = Found(tools)
    text = clean_text(output) if isinstance(output, str) else ""
    if format == "openai":
        text = read_openai(output if isinstance(output, Mapping) else text, found)
    else:
        walk(text, READERS[format], found)
    if found.calls or found.fault is not None:
        return found.result()
    if fallback is not None:
        parse = parse_tool_calls(text, fallback, tools=tools)
        if parse.status == "none":
            return parse
        return replace(parse, warnings=tuple(dict.fromkeys(("tool_call_in_text", *parse.warnings))))
    if format == "openai" and OPEN_TAG in text:
        found.warn("tool_call_in_text")
    return found.result()
