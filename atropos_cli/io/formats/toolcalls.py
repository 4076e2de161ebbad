"""Tool calls, their results and the tools themselves, of any dialect, in the OpenAI shape.

A column store (parquet, `datasets`) gives all objects of a column the same keys, and fills those that a row does not
have with null. So a null among arguments that are an object stands for "not there", unless the tool's own definition
knows it as a value. Arguments that are JSON text are what the model wrote, and stay to the letter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Message, Row

TOOL_KEYS = ("tools", "tool_defs", "tool_definitions", "tool_schemas", "available_tools", "functions")
"""Where rows keep the definitions of their tools."""
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_CERTAIN = frozenset(("tools", "tool_defs"))  # what stands there must be tools


def read_call(call: Any, field: str, tools: Sequence[Row] | None = None) -> Row:
    """One call. tools: definitions, which say whether null is a value of an argument. Raises RowError."""
    if not isinstance(call, dict):
        raise RowError(field, "a tool call", kind_of(call))
    function = call["function"] if isinstance(call.get("function"), dict) else call
    if not isinstance(function.get("name"), str):
        raise RowError(f"{field}.function.name", "text", kind_of(function.get("name")))
    arguments: Any = next((function[key] for key in _ARGUMENTS if function.get(key) is not None), {})
    if isinstance(arguments, dict):
        arguments = _without_filling(arguments, function["name"], tools)
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    ident = call.get("id")
    made: Row = {
        "id": ident if isinstance(ident, str) else None,
        "type": "function",
        "function": {"name": function["name"], "arguments": text},
    }
    return made


def calls_of_text(value: Any, field: str, tools: Sequence[Row] | None = None) -> list[Row]:
    """Tool calls from JSON text (or the value itself): one {name, arguments} object, or a list of them."""
    if not isinstance(value, str):
        return [read_call(call, field, tools) for call in (value if isinstance(value, list) else [value])]
    try:
        found = from_json(value)
    except ValueError:
        raise RowError(field, "the JSON of a function call", kind_of(value)) from None
    calls = found if isinstance(found, list) else [found]
    return [read_call(_with_text(call), field) for call in calls]


def _with_text(call: Any) -> Any:
    """A call out of a text with its arguments as text: no column store has been at them."""
    if not isinstance(call, dict):
        return call
    inner = call["function"] if isinstance(call.get("function"), dict) else call
    key = next((key for key in _ARGUMENTS if isinstance(inner.get(key), dict)), None)
    if key is None:
        return call
    made = {**inner, key: json.dumps(inner[key], ensure_ascii=False)}
    return {**call, "function": made} if inner is not call else made


def _without_filling(arguments: Row, name: str, tools: Sequence[Row] | None) -> Row:
    """The arguments without the nulls that stand for nothing."""
    if None not in arguments.values() and not any(isinstance(value, dict | list) for value in arguments.values()):
        return arguments
    properties = _parameters(name, tools).get("properties")
    return {
        key: without_nulls(value)
        for key, value in arguments.items()
        if value is not None or _takes_null(properties, key)
    }


def _parameters(name: str, tools: Sequence[Row] | None) -> Row:
    for tool in tools or ():
        function = tool.get("function")
        if isinstance(function, dict) and function.get("name") == name and isinstance(function.get("parameters"), dict):
            found: Row = function["parameters"]
            return found
    return {}


def _takes_null(properties: Any, key: str) -> bool:
    """Does the schema of a parameter know null as a value?"""
    schema = properties.get(key) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return False
    kinds = [schema, *(kind for name in ("anyOf", "oneOf") for kind in schema.get(name) or ())]
    return schema.get("nullable") is True or any(
        kind.get("type") == "null" or (isinstance(kind.get("type"), list) and "null" in kind["type"])
        for kind in kinds
        if isinstance(kind, dict)
    )


def join_calls(messages: Sequence[Message]) -> list[Message]:
    """Messages in which calls made in one turn are one message: dialects with a turn for each call write several.

    Only a message that holds nothing but calls joins the calls before it.
    """
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is not None and _only_calls(message) and last.get("tool_calls") and _same_weight(last, message):
            joined[-1] = {**last, "tool_calls": [*last["tool_calls"], *message["tool_calls"]]}
            if "finish_reason" in message:
                joined[-1]["finish_reason"] = message["finish_reason"]
        else:
            joined.append(message)
    return joined


def join_thoughts(messages: Sequence[Message]) -> list[Message]:
    """Messages in which a thought given as a separate message is the reasoning of the reply behind it."""
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        if last is not None and message["role"] == "assistant" and _only_thought(last):
            thought = "\n".join(filter(None, (last["reasoning"], message.get("reasoning"))))
            joined[-1] = {**message, "reasoning": thought}
        else:
            joined.append(message)
    return joined


def _only_thought(message: Message) -> bool:
    return bool(message.get("reasoning")) and message.get("content") is None and not message.get("tool_calls")


def _only_calls(message: Message) -> bool:
    return bool(message.get("tool_calls")) and not message.get("content") and not message.get("reasoning")


def _same_weight(a: Message, b: Message) -> bool:
    return bool(a.get("weight", 1) == b.get("weight", 1))


def link_tool_results(messages: Sequence[Message]) -> None:
    """Give calls and results without ids matching ones (call_0, call_1, ...), in their order."""
    made = 0
    waiting: list[str] = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            if not call.get("id"):
                call["id"] = f"call_{made}"
            made += 1
            waiting.append(call["id"])
        if message["role"] == "tool":
            ident = message.get("tool_call_id")
            if ident is None and waiting:
                message["tool_call_id"] = waiting.pop(0)
            elif ident in waiting:
                waiting.remove(ident)


def tools_of(raw: Row) -> list[Row] | None:
    """The tools of a row, under any of their usual names. Raises RowError."""
    for key in TOOL_KEYS:
        value = raw.get(key)
        if value and (key in _CERTAIN or _may_be_tools(value)):
            return read_tools(value, key)
    return None


def _may_be_tools(value: Any) -> bool:
    if isinstance(value, str):
        return value.lstrip().startswith("[") and '"name"' in value
    return isinstance(value, list) and all(
        isinstance(tool, dict) and ("function" in tool or "name" in tool) for tool in value
    )


def read_tools(value: Any, field: str = "tools") -> list[Row] | None:
    """The tools of a row: a list, or the JSON text of one (or of each tool). Raises RowError."""
    if value is None or value == "":
        return None
    tools = expect_tools(_from_text(value, field), field)
    return [_tool(_from_text(tool, f"{field}[{i}]"), f"{field}[{i}]") for i, tool in enumerate(tools)] or None


def expect_tools(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise RowError(field, "a list of tools or its JSON text", kind_of(value))
    return value


def _from_text(value: Any, field: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return from_json(value)
    except ValueError:
        raise RowError(field, "a list of tools or its JSON text", kind_of(value)) from None


def _tool(tool: Any, field: str) -> Row:
    """A definition in the OpenAI shape; other dialects name the parameters otherwise, or leave the frame out."""
    if not isinstance(tool, dict):
        raise RowError(field, "a tool", kind_of(tool))
    made: Row = without_nulls(tool)
    if "function" in made or "name" not in made:
        return made
    function = {key: value for key, value in made.items() if key not in ("type", "input_schema")}
    if "input_schema" in made:
        function.setdefault("parameters", made["input_schema"])
    return {"type": "function", "function": function}


def without_nulls(value: Any) -> Any:
    """The value without the keys of objects that hold null; a list keeps its nulls, and so do "default" and "const"."""
    if isinstance(value, dict):
        return {
            key: without_nulls(item) for key, item in value.items() if item is not None or key in ("default", "const")
        }
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
