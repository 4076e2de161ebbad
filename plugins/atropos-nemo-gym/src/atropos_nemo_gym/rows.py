"""Rows of a file of tasks, and OpenAI's Responses API, in which they and the server's verify are written."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from atropos_cli.sdk import DataError, FunctionCall, Message, ToolCall, user

Data: TypeAlias = dict[str, Any]
"""JSON of a file or a server: anything may be in it."""
PARAMS = "responses_create_params"
_ROLES = frozenset({"system", "developer", "user", "assistant"})


class Rows:
    """The rows of a JSONL file by number. The file's lines are found once, and read when they are asked for."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._places = array("q", _places(file))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Data:
        with self._file.open("rb") as source:
            source.seek(self._places[index])
            line = source.readline()
        try:
            row = json.loads(line)
            if isinstance(row[PARAMS], dict):
                return dict(row)
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise DataError(
            f"row {index + 1} of {self._file} is not a task of NeMo Gym: it has no {PARAMS}",
            hint="a file such as data/example.jsonl beside the server's app.py",
        )


def _places(file: Path) -> Iterator[int]:
    place = 0
    with file.open("rb") as source:
        for line in source:
            if line.strip():
                yield place
            place += len(line)


def prompt_of(params: Data) -> tuple[Message, ...]:
    """The conversation that the row begins with. Raises DataError."""
    given = params.get("input")
    made: list[Message] = []
    if isinstance(params.get("instructions"), str):
        made.append(Message(role="system", content=params["instructions"]))
    if isinstance(given, str):
        made.append(user(given))
    elif isinstance(given, list):
        for item in given:
            try:
                made += _messages(item)
            except (KeyError, TypeError, ValueError) as error:  # what is lacking, or of another type
                raise DataError(f"an item of the input cannot be read: {json.dumps(item, default=str):.120}") from error
    if not made:
        raise DataError("the row has no input: its server's agent makes the prompt itself")
    return tuple(made)


def _messages(item: Any) -> list[Message]:
    """An item of the input; a call follows the reply that it belongs to only where it is one item."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message" and item.get("role") in _ROLES:
        return [Message(role=item["role"], content=_content(item.get("content")))]
    if kind == "function_call":
        call = ToolCall(id=item.get("call_id"), function=FunctionCall(name=item["name"], arguments=item["arguments"]))
        return [Message(role="assistant", content="", tool_calls=(call,))]
    if kind == "function_call_output":
        return [Message(role="tool", content=str(item.get("output")), tool_call_id=item.get("call_id"))]
    if kind == "reasoning":
        return []
    raise DataError(f"an item of the input cannot be read: {json.dumps(item, default=str):.120}")


def _content(content: Any) -> str | tuple[Data, ...]:
    """A text, or parts in the shape of chats where there are pictures."""
    if isinstance(content, str):
        return content
    parts: list[Data] = []
    for part in content or ():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_text", "output_text", "text"):
            parts.append({"type": "text", "text": part["text"]})
        elif kind == "input_image" and isinstance(part.get("image_url"), str):
            parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
        else:
            raise DataError(f"a part of the input cannot be read: {json.dumps(part, default=str):.120}")
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return tuple(parts)


def tools_of(params: Data) -> list[Data]:
    """The functions of the row in the shape of chats. Raises DataError for tools of a hosted service."""
    made: list[Data] = []
    given = params.get("tools") or []
    if not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise DataError(f"the row's tools are not a list of functions: {json.dumps(given, default=str):.120}")
    for tool in given:
        if tool.get("type", "function") != "function":
            raise DataError(f"the row has a tool of the kind {tool.get('type')!r}: functions alone are supported")
        if not isinstance(tool.get("name"), str):
            raise DataError(f"the row has a tool without a name: {json.dumps(tool, default=str):.120}")
        function = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
        made.append({"type": "function", "function": function})
    return made


def output_of(messages: Sequence[Message]) -> list[Data]:
    """Replies and the results of their calls as the items of a response."""
    items: list[Data] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            output = {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}
            items.append({**output, "status": "completed"})
            continue
        if message.role != "assistant":
            items.append({"type": "message", "role": message.role, "content": message.text})
            continue
        if message.reasoning:
            summary = [{"type": "summary_text", "text": message.reasoning}]
            items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
        if message.text or not message.tool_calls:
            text = {"type": "output_text", "text": message.text, "annotations": []}
            reply = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
            items.append({**reply, "content": [text]})
        for call in message.tool_calls or ():
            function = {"name": call.function.name, "arguments": call.function.arguments}
            named = {"type": "function_call", "id": f"fc_{number}", "call_id": call.id, "status": "completed"}
            items.append({**named, **function})
    return items


def response_of(params: Data, items: Sequence[Data], *, model: str, now: float, cut: bool) -> Data:
    """A response of the Responses API that holds the whole episode."""
    return {
        "id": "resp_atropos",
        "object": "response",
        "created_at": now,
        "model": model,
        "output": list(items),
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice") or "auto",
        "tools": params.get("tools") or [],
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
    }


def numbers_of(said: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a verify adds to the row, without the reward."""
    known = {*row, "reward", "response"}
    return {
        str(key): float(value)
        for key, value in said.items()
        if key not in known and isinstance(value, int | float) and abs(value) < float("inf")
    }
