"""Messages in the shape that litellm takes, which is OpenAI's."""

from __future__ import annotations

from typing import Any

from atropos_cli.sdk import Message


def message_json(message: Message) -> dict[str, Any]:
    """A message without what only we know of it: tokens, finish reason, thinking."""
    fields = message.model_dump(
        mode="json", exclude_none=True, exclude={"tokens", "finish_reason", "reasoning"}, exclude_defaults=False
    )
    fields.setdefault("content", None if message.tool_calls else "")
    return fields
