"""Tell a model's thinking from its answer, in text where the thinking was left inside tags."""

from __future__ import annotations

import re

THINK_NAMES = ("think", "thinking", "thought", "reasoning")
"""Tag names of thinking blocks, in any case: <think>...</think>."""

_NAMES = "|".join(THINK_NAMES)
_CLOSE = re.compile(rf"</(?:{_NAMES})>", re.IGNORECASE)
_OPEN = re.compile(rf"<(?:{_NAMES})>", re.IGNORECASE)


def split_thinking(text: str) -> tuple[str, str | None]:
    """(thinking, answer): the answer is what follows the last closing tag.

    The answer is None when a block is opened and never closed: the model was cut off while it
    thought. A closing tag alone counts, because a chat template may have written the opening one.
    Without any tag the whole text is the answer.
    """
    end = 0
    for match in _CLOSE.finditer(text):
        end = match.end()
    opened = _OPEN.search(text, end)
    if opened is not None:
        return text, None
    return text[:end], text[end:]
