"""Calls of tools that a server left in the text of a reply: the task gets them read, the model sees its own text again.

Where the chat template shows calls, a call in the text and in `tool_calls` would be shown twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atropos_cli.sdk import parse_tool_calls
from atropos_cli.sdk.foreign import Data


class TextCalls:
    """Of one rollout."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._calls = 0

    def read(self, question: Mapping[str, Any], said: Data) -> Data:
        """The answer to a request, with the calls in its texts. Texts that cannot be read stay as they are."""
        tools = question.get("tools")
        if not tools:
            return said
        choices = [self._choice(choice, tools) for choice in said["choices"]]
        return {**said, "choices": choices}

    def _choice(self, choice: Data, tools: Any) -> Data:
        text = choice.get("content") or ""
        if choice.get("tool_calls") or not text:
            return choice
        parse = parse_tool_calls(text, "auto", tools=tools)
        if parse.status != "ok":
            return choice
        self._read.add(text)
        calls = []
        for call in parse.calls:
            calls.append(call.as_tool_call(f"call_{self._calls}").model_dump(mode="json"))
            self._calls += 1
        return {**choice, "tool_calls": calls, "finish_reason": "tool_calls"}

    def hidden(self, messages: list[Data]) -> list[Data]:
        """Messages of the task as the model wrote them: without the calls that were read in their texts."""
        return [
            {key: value for key, value in item.items() if key != "tool_calls"}
            if item.get("role") == "assistant" and item.get("content") in self._read
            else item
            for item in messages
        ]
