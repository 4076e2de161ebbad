"""Rows in a trainer's own shape, made whole: fields beside the conversation are put into it.

    demonstrations    {input_ids, labels}, {messages}, {conversations}, {prompt, completion}, {text}
    pairs             {prompt?, chosen, rejected}, {conversations, chosen, rejected}
    labelled          {prompt, completion, label}

Token ids and plain texts stay as they are. Everything else is read as the commands over rollouts read it, and comes
out as messages: {messages}, {prompt, completion}, {prompt, completion, label} or {prompt, chosen, rejected}, and
`tools` as a list.
"""

from __future__ import annotations

from typing import Any

from atropos_cli.datasets.convert.samples import clean, expect_question, has_question
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.methods import Learns
from atropos_cli.io.formats import detect, read_as
from atropos_cli.io.formats.common import expect_count, expect_ids, read_messages
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.prompts import HISTORY, KEYS, SYSTEM, prompt_of, reply_key
from atropos_cli.io.formats.toolcalls import TOOL_KEYS
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Message, Record

_SHAPES: dict[str, tuple[frozenset[str], ...]] = {
    "demonstrations": tuple(map(frozenset, (("messages",), ("prompt", "completion"), ("text",), ("conversations",)))),
    "pairs": (frozenset(("chosen", "rejected")),),
    "labelled": (frozenset(("completion", "label")),),
}
_FORMATS = {
    "demonstrations": ("messages", "sharegpt", "completion", "text"),
    "pairs": ("preference", "sharegpt"),
    "labelled": ("completion",),
}
_SIDES = {
    "demonstrations": ("prompt", "completion"),
    "pairs": ("prompt", "chosen", "rejected"),
    "labelled": ("prompt", "completion"),
}
_BESIDE = frozenset((*KEYS - {"prompt"}, *TOOL_KEYS))


def has_shape(row: JsonDict, learns: Learns) -> bool:
    """Is this the trainer's own row, and no rollouts with scores to choose by?"""
    if learns == "demonstrations" and {"input_ids", "labels"} <= row.keys() and "scores" not in row:
        return True
    form = detect(row)
    return form is not None and form.name in _FORMATS[learns] and any(shape <= row.keys() for shape in _SHAPES[learns])


def own_row(row: JsonDict, learns: Learns) -> JsonDict:
    """A row of the trainer's shape with its whole prompt. Raises RowError, BadMessage."""
    if "input_ids" in row:
        _check_tokens(row)
    labelled = learns == "labelled"
    if labelled and not isinstance(row["label"], bool):
        raise RowError("label", "true or false", kind_of(row["label"]))
    if _is_whole(row, learns):
        return row
    form = detect(row)
    assert form is not None, "the row has one of the trainer's shapes"
    record = read_as(form, row, "", 0)
    rollouts = [rollout for rollout in record.rollouts if learns != "demonstrations" or rollout.label != "rejected"]
    for rollout in rollouts:
        expect_question(record, rollout.messages)
    length = rollouts[0].prompt_length
    if rollouts[0].messages[:length] == [{"role": "user", "content": row.get("prompt")}] and _are_texts(row, learns):
        return row  # what stands beside the prompt is in it
    sides = [_clean(rollout.messages[length:]) for rollout in rollouts]
    if any(side == [] for side in sides):
        raise RowError("the row", "a reply", "a conversation without one")
    prompt = _clean(rollouts[0].messages[:length])
    made: dict[str, Any] = {"prompt": prompt, "completion": sides[0]}
    if learns == "pairs":
        made = {"prompt": prompt, "chosen": sides[0], "rejected": sides[1]}
    elif labelled:
        made["label"] = row["label"]
    elif form.name != "completion":
        made = {"messages": [*prompt, *sides[0]]}
    return {**made, **_tools(record)}


def with_whole_prompt(row: JsonDict) -> JsonDict:
    """A row with a prompt to complete: system and history beside it are part of it. Raises RowError."""
    parts = [key for key in (*SYSTEM, *HISTORY) if row.get(key)]
    text = row.get("prompt")
    stored = isinstance(text, str) and text.lstrip().startswith("[{") and "role" in text
    if not parts and not stored:
        return row
    prompt: Any = prompt_of(row, without=KEYS - {"prompt", *parts})
    return {**row, "prompt": prompt}


def _is_whole(row: JsonDict, learns: Learns) -> bool:
    """Token ids; texts with nothing beside them; messages in the OpenAI shape with nothing beside them."""
    if "input_ids" in row or (
        learns == "demonstrations" and "text" in row and not {"messages", "conversations"} & row.keys()
    ):
        return True
    if not _BESIDE.isdisjoint(row) or "conversations" in row:
        return False
    if learns == "demonstrations" and "messages" in row:
        return "prompt" not in row and reply_key(row) is None and _is_asked(row["messages"])
    if not _is_asked(row.get("prompt")):
        return False
    return _are_texts(row, learns) or all(_is_plain(row.get(name)) for name in _SIDES[learns])


def _check_tokens(row: JsonDict) -> None:
    """Raises RowError for invalid token data (domain.tokendata), and for labels of another length."""
    ids = expect_ids(row["input_ids"], "input_ids")
    if "labels" in row:
        labels: Any = row["labels"]
        expect_count(labels, "labels", len(ids), "input_ids")
        expect_ids([label for label in labels if type(label) is not int or label != -100], "labels (-100 apart)")


def _is_asked(prompt: Any) -> bool:
    """A prompt in words, or plain messages that ask something."""
    return bool(prompt.strip()) if isinstance(prompt, str) else _is_plain(prompt) and has_question(prompt)


def _are_texts(row: JsonDict, learns: Learns) -> bool:
    return all(isinstance(row.get(name), str) for name in _SIDES[learns])


def _is_plain(value: Any) -> bool:
    """Messages of texts only, which the reader gives back as they are; it raises no error for them."""
    try:
        return isinstance(value, list) and bool(value) and read_messages(value, "") is value
    except RowError:
        return False


def _clean(messages: list[Message]) -> list[Message]:
    return [clean(message) for message in messages]


def _tools(record: Record) -> JsonDict:
    return {"tools": list(record.tools)} if record.tools else {}
