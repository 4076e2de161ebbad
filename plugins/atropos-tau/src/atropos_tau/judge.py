"""The judge of assertions in words: one request, and an answer that may be anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from atropos_cli.sdk import Message, RoleModel, split_thinking, user
from atropos_cli.sdk.prompts import Prompt

TRIES = 2
_NAMES = ("met", "metExpectation")
_MOST_STARTS = 50


async def verdicts(
    model: RoleModel, prompt: Prompt, conversation: str, assertions: Sequence[str]
) -> tuple[list[bool] | None, int]:
    """(one verdict for each assertion, or None where no answer could be read; answers that could not be read)."""
    asked = user(prompt.text("judge", conversation=conversation, assertions=list(assertions)))
    for unread in range(TRIES):
        found = read_verdicts((await model.reply([asked])).text, len(assertions))
        if found is not None:
            return found, unread
    return None, TRIES


def read_verdicts(text: str, count: int) -> list[bool] | None:
    """The verdicts in an answer: JSON with one result for each assertion, alone or in other text; else None."""
    answer = split_thinking(text)[1] or ""
    for value in _values(answer):
        results = value.get("results") if isinstance(value, dict) else value
        if isinstance(results, list) and len(results) == count:
            found = [_verdict(item) for item in results]
            if None not in found:
                return [bool(item) for item in found]
    return None


def _verdict(item: Any) -> bool | None:
    if isinstance(item, dict):
        item = next((item[name] for name in _NAMES if name in item), None)
    return item if isinstance(item, bool) else None


def _values(text: str) -> Iterator[Any]:
    """The JSON objects and lists that begin somewhere in a text."""
    decoder = json.JSONDecoder()
    place = 0
    for _ in range(_MOST_STARTS):
        starts = [at for mark in "{[" if (at := text.find(mark, place)) >= 0]
        if not starts:
            return
        place = min(starts)
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
        else:
            yield value


def transcript(messages: Sequence[Message]) -> str:
    """What agent and user said to each other, one message after the other."""
    names = {"assistant": "agent", "user": "user"}
    return "\n".join(f"{names[m.role]}: {m.text}" for m in messages if m.role in names and m.text.strip())
