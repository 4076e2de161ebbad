"""Read tool calls out of a completion: what was called, how clean it was, what had to be repaired.

    parse = parse_tool_calls(text, "hermes", tools=tools)
    if parse.status == "ok":
        run(parse.calls)

Formats: hermes (<tool_call>{...}</tool_call>), json (an object or list of objects in the text),
openai (a message with `tool_calls`, as JSON text or as a mapping), python (calls with literal
arguments in a ```python block), react ("Action:" with JSON, or "Action:" and "Action Input:"), and auto:
the first of openai, hermes, react, python and json, in this order, in which a call is found. For auto, a text that is a
message with `tool_calls` is openai too, after thinking and in a fence, and its entries may lack the level `function`.

Thinking and memory blocks are left out before calls are looked for. JSON is decoded from its first
brace, so that a closing tag inside a string does no harm. Nothing is evaluated, cut-off JSON is never
completed, and one broken call makes the whole completion an error: half of it must not be executed.
Whatever the text is, nothing is raised and the time is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from atropos_cli.domain.base import clean_text
from atropos_cli.text.toolparsing.check import tool_names
from atropos_cli.text.toolparsing.formats import OPEN_TAG, READERS, read_openai, read_written_message
from atropos_cli.text.toolparsing.found import Found, ParsedCall, ToolParse, walk

__all__ = ["AUTO_ORDER", "ParsedCall", "ToolFormat", "ToolParse", "parse_tool_calls"]

ToolFormat = Literal["auto", "hermes", "json", "openai", "python", "react"]
AUTO_ORDER: tuple[ToolFormat, ...] = ("openai", "hermes", "react", "python", "json")
"""How auto looks for calls: what a server has parsed, marks that mean nothing else, then what may be prose."""


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
    if format == "auto":
        return _auto(output, tools)
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


def _auto(output: str | Mapping[str, Any] | None, tools: Sequence[Mapping[str, Any]] | None) -> ToolParse:
    """The first format with a call. Where there is none, the first fault of a text that meant to call.

    Code and JSON in an answer are calls only of tools that were offered, where it is known which were.
    """
    names = None if tools is None else tool_names(tools)
    fault: ToolParse | None = None
    if isinstance(output, str) and '"tool_calls"' in output:
        found = Found(tools)
        read_written_message(clean_text(output), found)
        parse = found.result()
        if parse.calls and (names is None or any(call.name in names for call in parse.calls)):
            return parse
        if parse.status == "error" and (names is None or _mentions(output, names)):
            return parse
    if isinstance(output, Mapping):
        parse = parse_tool_calls(output, "openai", tools=tools)
        if parse.status != "none":
            return parse
        output = read_openai(output, Found(tools))
    for name in AUTO_ORDER[1:]:
        parse = parse_tool_calls(output, name, tools=tools)
        known = None if name == "hermes" else names
        if parse.status == "ok" and (known is None or any(call.name in known for call in parse.calls)):
            return parse
        if parse.status == "error" and fault is None and parse.error != "not_a_call":
            fault = parse if known is None or _mentions(str(output), known) else None
        if fault is not None and name == "hermes":
            return fault
    return fault or ToolParse("none")


def _mentions(text: str, names: Sequence[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)
