"""Rows for DPO, checked before TRL sees them.

{"prompt", "chosen", "rejected"}    all texts or all lists of messages

Pairs with tools or tool calls become texts here: the trainer keeps its rows in a table, which would give every call the
arguments of all others, as nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.sdk import DataError, JsonDict
from atropos_cli.sdk.training import is_cut, render_dialogue

_WANTED = "rows need prompt, chosen and rejected: atropos dpo-gen makes them from rollouts"
_SIDES = ("chosen", "rejected")


@dataclass
class Preferences:
    """Pairs ready for the trainer, and what was left out."""

    rows: list[JsonDict] = field(default_factory=list)
    identical: int = 0
    too_long: int = 0
    cut: int = 0
    """A side was cut off: TRL writes an end token behind both."""


def preferences(rows: Iterable[JsonDict], tokenizer: Any, *, max_length: int | None) -> Preferences:
    """Raises DataError for a row of another shape, and when no pair is left."""
    found = Preferences()
    seen = 0
    for number, row in enumerate(rows, start=1):
        seen = number
        pair = check_side(row, number, ("prompt", *_SIDES), tokenizer, hint=_WANTED)
        try:
            if row.get("tools") or calls(pair):
                pair = as_texts(pair, row.get("tools"), tokenizer, _SIDES)
            length = length_of(pair, tokenizer, _SIDES)
        except ValueError as error:
            raise DataError(f"row {number} cannot be trained on: {error}", hint=_WANTED) from error
        if pair["chosen"] == pair["rejected"]:
            found.identical += 1
        elif _cut(pair):
            found.cut += 1
        elif max_length is not None and length > max_length:
            found.too_long += 1
        else:
            found.rows.append(pair)
    if not seen:
        raise DataError("the data have no pair to train on", hint=_WANTED)
    if not found.rows:
        raise DataError(
            f"none of {seen} pairs can be trained on: {found.identical} have the same text on both sides, "
            f"{found.too_long} are longer than {max_length} tokens, {found.cut} hold a reply that was cut off",
            hint="see dpo-gen --help for pairs with a margin, or raise --max-length",
        )
    return found


def _cut(pair: JsonDict) -> bool:
    """Does a side hold a reply that was cut off?"""
    sides: list[Any] = [pair["chosen"], pair["rejected"]]
    return any(is_cut(message) for side in sides if isinstance(side, list) for message in side)


def check_side(row: JsonDict, number: int, names: Sequence[str], tokenizer: Any, *, hint: str) -> JsonDict:
    """These fields of a row: all texts or all lists of messages. Raises DataError."""
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    missing = [name for name in names if row.get(name) in (None, "", [])]
    if missing:
        raise DataError(
            f"row {number} has no {missing[0]!r} (its keys: {', '.join(list(row)[:8]) or 'none'})", hint=hint
        )
    for name in names:
        if not (isinstance(row[name], str) or _are_messages(row[name])):
            raise DataError(
                f"row {number}: {name!r} is neither a text nor a list of messages with a role and content",
                hint=f"make {listed} all texts, or all lists of {{role, content}}",
            )
    if len({isinstance(row[name], str) for name in names}) > 1:
        raise DataError(f"row {number} mixes texts and lists of messages", hint=f"make {listed} all one or the other")
    if tokenizer.chat_template is None and not isinstance(row["prompt"], str):
        raise DataError(
            f"row {number} has lists of messages, but the model has no chat template",
            hint=f"give {listed} as texts, or a model with a chat template",
        )
    return {name: row[name] for name in names}


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    """With a role and content; one that only calls tools needs no content."""
    if not isinstance(value, dict) or "role" not in value:
        return False
    return isinstance(value.get("content"), str | list) or bool(value.get("tool_calls"))


def as_texts(row: JsonDict, tools: Any, tokenizer: Any, sides: Sequence[str]) -> JsonDict:
    """The row as the template writes it. Raises ValueError when a prompt is not how its sides begin."""
    prompt: Any = row["prompt"]
    opening = render_dialogue(prompt, tokenizer, tools=tools, add_generation_prompt=True)
    made: JsonDict = {"prompt": _own(opening, tokenizer)}
    for side in sides:
        messages: Any = row[side]
        whole = render_dialogue([*prompt, *messages], tokenizer, tools=tools)
        if not whole.startswith(opening):
            raise ValueError("the chat template writes the prompt otherwise before a reply")
        text = whole[len(opening) :]
        mark = text.rfind(tokenizer.eos_token) if tokenizer.eos_token else -1
        made[side] = text[: mark + len(tokenizer.eos_token)] if mark >= 0 else text
    return made


def _own(text: str, tokenizer: Any) -> str:
    """A rendered text without the beginning token that the tokenizer adds itself."""
    begin = tokenizer.bos_token
    adds = begin and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    return text.removeprefix(begin) if adds else text


def calls(row: JsonDict) -> bool:
    """Does a message call tools?"""
    sides: list[Any] = [side for side in row.values() if isinstance(side, list)]
    return any(message.get("tool_calls") for side in sides for message in side)


def length_of(row: JsonDict, tokenizer: Any, sides: Sequence[str]) -> int:
    """Tokens of the prompt with its longest side."""
    prompt: Any = row["prompt"]
    lengths = []
    for side in sides:
        value: Any = row[side]
        if isinstance(value, str):
            lengths.append(len(tokenizer(prompt + value)["input_ids"]) + 1)
            continue
        text = render_dialogue([*prompt, *value], tokenizer)
        lengths.append(len(tokenizer(text, add_special_tokens=False)["input_ids"]))
    return max(lengths)
