"""One form for thinking, whichever dress a model family or a server gave it.

    tags    <think>\\nplan\\n</think>\\n\\nFour       in the content, with the marks of any family
    field   reasoning: "plan", content: "Four"       apart
    (half)  plan\\n</think>\\n\\nFour                 the prompt held the opening mark

`normal_thinking` turns all three into the form asked for: "field", "tags", or "drop". "keep" changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from atropos_cli.io.records import Message
from atropos_cli.text.thinking import may_think, split_thinking, thought_text

ThinkingForm = Literal["keep", "field", "tags", "drop"]


def thinking_of(message: Message) -> tuple[str, str]:
    """(thinking, answer) of an assistant message; both stripped of white space at the seam. "" when there is none.

    A block that was opened and never closed is thinking without an answer.
    """
    content = message.get("content")
    reasoning = message.get("reasoning") or ""
    if not isinstance(content, str):
        return reasoning.strip(), ""
    inside, answer = split_thinking(content)
    if answer is None:
        inside, answer = content, ""
    if not inside:
        return reasoning.strip(), answer
    thought = thought_text(inside)
    both = f"{reasoning.strip()}\n{thought}" if reasoning.strip() and thought else reasoning.strip() or thought
    return both, answer.lstrip()


def normal_thinking(message: Message, form: ThinkingForm) -> Message:
    """The message with its thinking in one form; the same object when there is nothing to change."""
    content = message.get("content")
    if form == "keep" or message["role"] != "assistant" or isinstance(content, list):
        return message
    if "reasoning" not in message and not may_think(content or ""):
        return message
    thought, answer = thinking_of(message)
    if not thought and "reasoning" not in message and answer == (content or ""):
        return message
    changed = {key: value for key, value in message.items() if key != "reasoning"}
    empty = content is None and not answer
    changed["content"] = None if empty else answer
    if not thought or form == "drop":
        return changed
    if form == "field":
        changed["reasoning"] = thought
    else:
        changed["content"] = f"<think>\n{thought}\n</think>\n\n{answer}"
    return changed


def normal_messages(messages: Sequence[Message], form: ThinkingForm) -> list[Message]:
    """All messages of a conversation in one form."""
    return [normal_thinking(message, form) for message in messages]
