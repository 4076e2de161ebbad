"""Messages as chat templates expect them: text content, tool arguments as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from atropos_cli.datasets.convert.template import Turn
from atropos_cli.io.records import Message


class BadMessage(Exception):
    """A message that cannot become training text. reason: a word for the report; the text explains it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def as_turns(messages: Sequence[Message]) -> list[Turn]:
    """All messages of a conversation as turns. Raises BadMessage."""
    return [as_turn(message) for message in messages]


def as_turn(message: Message) -> Turn:
    """A new object. Content None becomes "": templates print None. Thinking is under the names they know."""
    turn: Turn = {"role": message["role"], "content": plain_text(message)}
    reasoning = message.get("reasoning")
    if reasoning:
        turn["reasoning_content"] = turn["thinking"] = reasoning
    for key in ("name", "tool_call_id"):
        if message.get(key):
            turn[key] = message[key]
    if message.get("tool_calls"):
        turn["tool_calls"] = objects_of(message["tool_calls"])
    return turn


def plain_text(message: Message) -> str:
    """The content as text. Raises BadMessage when a part is not text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise BadMessage("not_text", f"a {message['role']} message holds a part of type {kind!r}")
        texts.append(part["text"])
    return "\n".join(texts)


def objects_of(calls: Sequence[Any]) -> list[dict[str, Any]]:
    """Tool calls with `arguments` as objects, as TRL and chat templates want them. Raises BadMessage."""
    made = []
    for call in calls:
        function = call["function"]
        arguments = function.get("arguments")
        try:
            value = from_json(arguments) if isinstance(arguments, str) and arguments.strip() else arguments or {}
        except ValueError:
            raise BadMessage(
                "tool_arguments", f"the arguments of a call to {function['name']!r} are not JSON: {_shown(arguments)}"
            ) from None
        if not isinstance(value, dict):
            raise BadMessage(
                "tool_arguments",
                f"the arguments of a call to {function['name']!r} are not an object: {_shown(arguments)}",
            )
        one: dict[str, Any] = {"type": "function", "function": {"name": function["name"], "arguments": value}}
        if call.get("id"):
            one["id"] = call["id"]
        made.append(one)
    return made


def fold_system(messages: Sequence[Message]) -> list[Message]:
    """The conversation with the text of its system messages at the head of the first user message."""
    texts = [plain_text(message) for message in messages if message["role"] in ("system", "developer")]
    rest = [message for message in messages if message["role"] not in ("system", "developer")]
    texts = [text for text in texts if text]
    if not texts:
        return rest
    for i, message in enumerate(rest):
        if message["role"] == "user":
            text = plain_text(message)
            rest[i] = {**message, "content": "\n\n".join([*texts, text] if text else texts)}
            return rest
    return [{"role": "user", "content": "\n\n".join(texts)}, *rest]


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")
