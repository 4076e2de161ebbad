"""Multiple choice: find the gold option, shuffle the options by the task's id, letter them."""

from __future__ import annotations

import random
import re
from string import ascii_uppercase
from typing import Any

_POSITIONAL = re.compile(
    r"\b(?:all|any|none|both|neither|either|two|most)\s+(?:of\s+)?(?:the\s+)?(?:above|these|those|options|choices)\b"
    r"|\b(?:both|either|neither)\b\s+\(?[A-J1-9]\)?\s+(?:and|or|nor)\s+\(?[A-J1-9]\b"
    r"|^\s*\(?[A-J]\)?\s*(?:,|and|&|or)\s*\(?[A-J]\)?\b",
    re.IGNORECASE,
)


def options_of(value: Any) -> tuple[list[str], list[str]]:
    """(options, their labels in the data, empty when it has none). Raises ValueError.

    Taken: a list of texts or numbers, or {"text": [...], "label": [...]} as in ARC.
    """
    labels: Any = []
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        labels = value.get("label") or []
        value = value["text"]
    if not isinstance(value, list) or any(item is None or isinstance(item, dict | list) for item in value):
        raise ValueError("is not a list of options, nor {'text': [...], 'label': [...]}")
    if not 2 <= len(value) <= len(ascii_uppercase):
        raise ValueError(f"has {len(value)} options; 2 to {len(ascii_uppercase)} can be lettered")
    if labels and (not isinstance(labels, list) or len(labels) != len(value)):
        raise ValueError(f"has labels {labels!r} for {len(value)} options")
    return [str(item) for item in value], [str(label) for label in labels]


def gold_index(answer: Any, options: list[str], labels: list[str]) -> int:
    """Where the gold option stands: by label, by position from 0 (a number), by text, by letter. Raises ValueError."""
    if not isinstance(answer, bool | None):
        text = str(answer).strip()
        if labels.count(text) == 1:
            return labels.index(text)
        if isinstance(answer, int):
            if 0 <= answer < len(options):
                return answer
        elif options.count(text) == 1:
            return options.index(text)
        elif len(text.strip("()")) == 1 and (letter := ascii_uppercase.find(text.strip("()").upper())) in range(
            len(options)
        ):
            return letter
    raise ValueError(f"{answer!r} names none of the {len(options)} options, as label, position from 0, text or letter")


def shuffled(count: int, key: str) -> list[int]:
    """An order of `count` options that depends on the key only."""
    order = list(range(count))
    random.Random(key).shuffle(order)
    return order


def positional(options: list[str]) -> bool:
    """Does an option speak of others by their place ("all of the above")? Then the order must stay."""
    return any(_POSITIONAL.search(option) for option in options)


def lettered(options: list[str]) -> str:
    """One option a line: "A. ..."."""
    return "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
