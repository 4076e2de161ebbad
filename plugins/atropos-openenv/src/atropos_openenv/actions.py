"""From a model's reply to an action of a server, and from an observation to what the model sees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from atropos_cli.sdk import Message, split_thinking
from atropos_cli.sdk.foreign import Data

Kind = Literal["tools", "json", "text"]
ACT = "act"
"""The tool of a server whose actions are not calls of tools."""
_NOTHING = "The environment shows nothing here."
_HIDDEN = frozenset({"metadata", "reward", "done"})


class Unreadable(ValueError):
    """A reply in which there is no action; the model may correct it."""


def check_schema(schema: Any) -> Data:
    """The schema of an action, of which the rest of this module can be sure. Raises ValueError."""
    if not isinstance(schema, dict):
        raise ValueError("it describes no action")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(item, dict) for item in properties.values()):
        raise ValueError("the properties of an action are not an object of schemas")
    required = schema.get("required") or []
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ValueError("what an action requires is not a list of names")
    return schema


def has_tools(schema: Data) -> bool:
    """Are the server's actions calls of tools that it lists?"""
    return {"tool_name", "arguments"} <= _properties(schema).keys()


def text_field(schema: Data) -> str | None:
    """The only thing that an action needs, where it is a text."""
    properties = _properties(schema)
    names = list(schema.get("required") or properties)
    if len(names) != 1 or names[0] not in properties:
        return None
    given = properties[names[0]]
    return names[0] if given.get("type") == "string" and "enum" not in given else None


def kind_of(schema: Data, wanted: str) -> Kind:
    """How the model acts. Raises ValueError where the server's actions cannot be given so."""
    if wanted == "auto":
        if has_tools(schema):
            return "tools"
        return "text" if text_field(schema) is not None else "json"
    if wanted == "text" and text_field(schema) is None:
        raise ValueError("an action of this server is more than one text")
    if wanted != "tools" and has_tools(schema):
        raise ValueError("the actions of this server are calls of its tools")
    return "tools" if wanted == "tools" else "text" if wanted == "text" else "json"


def parameters(schema: Data) -> Data:
    """The schema of an action, without what the framework adds."""
    kept = {name: item for name, item in _properties(schema).items() if name != "metadata"}
    made: Data = {"type": "object", "properties": kept}
    if required := [name for name in schema.get("required") or () if name in kept]:
        made["required"] = required
    if "$defs" in schema:
        made["$defs"] = schema["$defs"]
    return made


def act_tool(schema: Data) -> Data:
    """The tool by which a model gives an action that is not a call of a tool."""
    about = str(schema.get("description") or "Do this in the environment.")
    return {"type": "function", "function": {"name": ACT, "description": about, "parameters": parameters(schema)}}


def listed(tools: Sequence[Any]) -> list[Data]:
    """The server's tools, as functions in OpenAI's shape. Raises ValueError."""
    made = []
    for tool in tools:
        if isinstance(tool, Mapping) and isinstance(tool.get("name"), str):
            given = tool.get("input_schema") or tool.get("inputSchema") or {"type": "object", "properties": {}}
            if not isinstance(given, Mapping):
                raise ValueError(f"the arguments of the server's tool {tool['name']!r} are described by no schema")
            about = str(tool.get("description") or "")
            made.append(
                {"type": "function", "function": {"name": tool["name"], "description": about, "parameters": given}}
            )
    return made


def by_json(reply: Message) -> Data:
    """The last JSON object in a reply. Raises Unreadable."""
    _, answer = split_thinking(reply.text)
    text = answer or ""
    decoder = json.JSONDecoder()
    place, found = 0, None
    while (start := text.find("{", place)) >= 0:
        try:
            value, place = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            place = start + 1
            continue
        if isinstance(value, dict):
            found = value
    if found is None:
        raise Unreadable("there is no JSON object in the reply")
    return found


def by_text(reply: Message, field: str) -> Data:
    """The reply, without its thinking, as the only text of an action."""
    _, answer = split_thinking(reply.text)
    return {field: (answer or "").strip()}


def arguments_of(text: str) -> Data:
    """The arguments of a call. Raises Unreadable."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the arguments are not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Unreadable("the arguments are not a JSON object")
    return found


def instructions(kind: Kind, schema: Data) -> str:
    """How to act, where no tools say it."""
    if kind == "json":
        return f"Reply with one JSON object that fits this schema:\n{json.dumps(parameters(schema))}"
    return ""


def seen(observation: Data, show: str | None) -> str:
    """An observation as a text: one field, the only one that is set, or all that are as JSON."""
    if show is not None:
        return _text(observation.get(show))
    shown = {name: item for name, item in observation.items() if name not in _HIDDEN and item is not None}
    if "result" in shown and {"tool_name", "result", "error"} >= shown.keys():
        return _text(shown.get("error")) if "error" in shown else _result(shown["result"])
    if not shown:
        return _text(observation.get("metadata") or _NOTHING)
    return _text(next(iter(shown.values()))) if len(shown) == 1 else _text(shown)


def _result(result: Any) -> str:
    """The text of a tool's result: the blocks of MCP, or the value."""
    blocks: Any = result.get("content") if isinstance(result, Mapping) else None
    if isinstance(blocks, Sequence) and not isinstance(blocks, str):
        texts = [str(item["text"]) for item in blocks if isinstance(item, Mapping) and "text" in item]
        if texts:
            return "\n".join(texts)
    return _text(result)


def _text(value: Any) -> str:
    """A text as it is, the contents of messages, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(_is_message(item) for item in value):
        return "\n".join(item["content"] for item in value)
    return json.dumps(value, ensure_ascii=False)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), str)


def _properties(schema: Data) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}
