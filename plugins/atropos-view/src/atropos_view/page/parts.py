"""A message as the parts that it is made of: text, thinking, memory, tool calls and results, images.

`domain.thinking` and `domain.toolparsing` decide what is what, as they do where rewards are given and calls carried
out. Nothing here trusts the shape of a message: it is strangers' JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.sdk import parse_tool_calls
from atropos_cli.sdk.data import NotJson, StoredMessage, may_think, parse_json, reply_blocks, thinking_of
from atropos_view.page.images import image_of

TEXT = 20_000
"""Characters of one text that are sent at first."""

PARTS = 200
"""Parts of one message that are sent."""

BRIEF = 200
_ARGUMENTS = 50
_PRETTY = 200_000
_CALL_OPEN = "<tool_call>"
_RESULT_OPEN, _RESULT_CLOSE = "<tool_response>", "</tool_response>"
_TEXTS = frozenset({"text", "input_text", "output_text"})
_THOUGHTS = frozenset({"thinking", "reasoning", "thought"})

Part = dict[str, Any]


class Cutter:
    """Cuts texts to TEXT characters, and to less once the budget is spent. Images have a budget of their own."""

    def __init__(self, budget: int, images: int) -> None:
        self._left = budget
        self._images = images

    def cut(self, text: str) -> tuple[str, int]:
        """(the text or its beginning, its full length if it was cut, else 0)."""
        limit = TEXT if self._left > 0 else BRIEF
        self._left -= min(len(text), limit)
        return (text, 0) if len(text) <= limit else (text[:limit], len(text))

    def image(self, part: Part) -> Part:
        """The part, or without its picture once they are too many."""
        size = len(part.get("src", ""))
        if size > self._images:
            return {"kind": "image", "note": f"{part.get('note', 'image')}, too much for one page"}
        self._images -= size
        return part


@dataclass(frozen=True)
class Tools:
    """What a conversation has of tools: those that were offered, and the names of those called, by the ids of calls."""

    offered: Sequence[Any] = ()
    called: Mapping[str, str] = field(default_factory=dict)


def message(cutter: Cutter, found: StoredMessage, index: int, tools: Tools) -> dict[str, Any]:
    """A message's parts. `cut` of a part is the full length of a text that was cut."""
    names = tools.called
    parts: list[Part] = []
    for part in parts_of(found, tools.offered):
        if len(parts) == PARTS:
            parts.append({"kind": "other", "text": "more parts are not shown"})
            break
        parts.append(_cut(cutter, part))
    data: dict[str, Any] = {"i": index, "role": found["role"], "parts": parts}
    for key in ("name", "tool_call_id", "weight"):
        if found.get(key) is not None:
            data[key] = plain(found[key])[:BRIEF]
    if "name" not in data and data.get("tool_call_id") in names:
        data["name"] = names[data["tool_call_id"]]
    return data


def full_text(found: StoredMessage, number: int, offered: Sequence[Any]) -> str | None:
    """The whole text of a part; None when there is no such part."""
    parts = list(parts_of(found, offered))
    return str(parts[number].get("text", "")) if 0 <= number < len(parts) else None


def tools_of(messages: Sequence[StoredMessage], offered: Sequence[Any] | None) -> Tools:
    """The tools of a conversation."""
    names: dict[str, str] = {}
    for found in messages:
        calls = found.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            ident, function = (call.get("id"), call.get("function")) if isinstance(call, dict) else (None, None)
            if isinstance(ident, str) and isinstance(function, dict) and isinstance(function.get("name"), str):
                names[ident[:BRIEF]] = function["name"][:BRIEF]
    return Tools(offered or (), names)


def parts_of(found: StoredMessage, offered: Sequence[Any] = ()) -> Iterator[Part]:
    """The parts of a message, whole: {kind, text, ...}. offered: tools, for calls in formats without tags."""
    role, content, reasoning = found["role"], found.get("content"), found.get("reasoning") or ""
    if role == "assistant" and isinstance(content, str) and may_think(content) and isinstance(reasoning, str):
        thought, answer = thinking_of(found)
        if thought != reasoning.strip():
            reasoning, content = thought, answer
    if reasoning:
        yield {"kind": "thinking", "text": plain(reasoning)}
    if isinstance(content, str):
        yield from _of_text(role, content)
        if role == "assistant" and not found.get("tool_calls") and offered:
            yield from _untagged(content, offered)
    elif isinstance(content, list):
        for item in content:
            yield from _of_item(role, item)
    calls = found.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield _stored_call(call)


def _of_text(role: str, text: str) -> Iterator[Part]:
    if role == "assistant":
        for block in reply_blocks(text):
            if block.kind != "call":
                yield {"kind": block.kind, "text": block.text}
            elif block.fault is not None:
                yield {"kind": "call", "name": "", "text": block.text, "fault": block.fault}
            else:
                for call in block.calls:
                    yield _call(call.name, call.arguments)
    elif role == "tool":
        yield _result(text)
    elif _RESULT_OPEN in text:
        yield from _results_in(text)
    elif text:
        yield {"kind": "text", "text": text}


def _untagged(text: str, offered: Sequence[Any]) -> Iterator[Part]:
    """Calls of offered tools in a text, in one of the formats without tags: the engine executes them too."""
    if len(text) > _PRETTY or _CALL_OPEN in text:
        return
    known = [tool for tool in offered if isinstance(tool, Mapping)]
    for call in parse_tool_calls(text, "auto", tools=known).calls if known else ():
        yield _call(call.name, call.arguments)


def _results_in(text: str) -> Iterator[Part]:
    """Results of tools that chat templates write into the user's turn."""
    pos = 0
    while (start := text.find(_RESULT_OPEN, pos)) >= 0:
        end = text.find(_RESULT_CLOSE, start)
        if end < 0:
            break
        if text[pos:start].strip():
            yield {"kind": "text", "text": text[pos:start].strip("\n")}
        yield _result(text[start + len(_RESULT_OPEN) : end].strip())
        pos = end + len(_RESULT_CLOSE)
    if text[pos:].strip():
        yield {"kind": "text", "text": text[pos:].strip("\n")}


def _of_item(role: str, item: Any) -> Iterator[Part]:
    """A part of a list of parts, in any of the usual dialects."""
    if isinstance(item, str):
        yield from _of_text(role, item)
        return
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str):
        yield {"kind": "other", "text": plain(item)}
        return
    text = next((item[key] for key in ("text", kind, "value") if isinstance(item.get(key), str)), None)
    if kind in _TEXTS and text is not None:
        yield from _of_text(role, text)
    elif kind in _THOUGHTS and text is not None:
        yield {"kind": "thinking", "text": text}
    elif kind == "tool_use":
        yield _call(plain(item.get("name")), item.get("input"))
    elif kind == "tool_result":
        inner = item.get("content")
        for part in inner if isinstance(inner, list) else [inner]:
            if isinstance(part, dict) and part.get("type") == kind:  # results are not nested, but for an attack
                yield {"kind": "other", "name": kind, "text": plain(part)}
            else:
                yield from _of_item("tool", part)
    else:
        yield image_of(item) or {"kind": "other", "name": kind[:BRIEF], "text": plain(item)}


def _stored_call(call: Any) -> Part:
    """One of a message's `tool_calls`."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return {"kind": "call", "name": "", "text": plain(call), "fault": "not_a_call"}
    arguments = function.get("arguments", "")
    if not isinstance(arguments, str):
        return _call(plain(function.get("name")), arguments)
    value = _parsed(arguments)
    if value is None and arguments.strip():
        return {"kind": "call", "name": plain(function.get("name")), "text": arguments, "fault": "invalid_json"}
    return _call(plain(function.get("name")), value if arguments.strip() else {})


def _call(name: str, arguments: Any) -> Part:
    """A call by name. `arguments`: [name, text] pairs of an object that has few."""
    part: Part = {"kind": "call", "name": name, "text": plain(arguments)}
    if isinstance(arguments, dict) and len(arguments) <= _ARGUMENTS:
        part["arguments"] = [[str(key), plain(value)] for key, value in arguments.items()]
    return part


def _result(text: str) -> Part:
    value = _parsed(text)
    return {"kind": "result", "text": text if value is None else plain(value)}


def _parsed(text: str) -> Any:
    """The object or list that a text is; None for anything else."""
    if len(text) > _PRETTY or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value, _ = parse_json(text.encode("utf-8", "replace"))
    except NotJson:
        return None
    return value


def _cut(cutter: Cutter, part: Part) -> Part:
    if part["kind"] == "image":
        return cutter.image(part)
    text, full = cutter.cut(part["text"])
    made = {**part, "text": text}
    if "name" in part:
        made["name"] = part["name"][:BRIEF]
    if full:
        made["cut"] = full
        made.pop("arguments", None)
    elif "arguments" in part:
        made["arguments"] = [[key[:BRIEF], value] for key, value in part["arguments"]]
        del made["text"]
    return made


def plain(value: Any) -> str:
    """Text as it is, anything else as indented JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (RecursionError, ValueError):
        return "(nested too deeply to be shown)"
