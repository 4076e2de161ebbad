"""The one builder of prompts: what a row asks, from all the fields that may hold a part of it.

    prompt_of(row)                   a prompt and its parts under any of their usual names, as messages
    in_context(messages, row)        a conversation, with what stands beside it: system, history, instruction, input
    dialogue(value, field)           a conversation in any form: messages, pairs, JSON text, a transcript
    replies(...)                     what answers a prompt, in any of these forms

Nothing is dropped: a text that finds no place is a RowError that names its field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import from_json

from atropos_cli.io.formats.common import expect_list, first_reply, is_dicts, read_messages, role_of
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.transcripts import KINDS, Ambiguous, Turn, asked_of, reply_of, turns_of, without_end
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Message, Row, text_of

SYSTEM = ("system", "system_prompt", "system_message", "system_instruction", "custom_system_prompt")
HISTORY = ("history", "chat_history", "conversation_history", "dialogue_history", "dialog_history", "previous_messages")
ASKED = ("prompt", "question", "problem", "query", "user_prompt", "user_query", "user_message")
"""Names of the question itself; a row asks one."""
MATTER = ("instruction", "instructions", "context", "passage", "document", "article", "background")
_PARTS = (*MATTER, *ASKED, "input")
"""The parts of what the user says, in the order in which they are put together."""
KEYS = frozenset((*SYSTEM, *HISTORY, *_PARTS))
"""All fields that hold a prompt or a part of one."""
REPLIES = ("completion", "output", "response", "generation")
"""Names of the one reply."""
_CONVERSATIONS = ("messages", "conversations", "conversation")
_SPEAKERS = {**KINDS, "prompt": "user", "query": "user", "completion": "assistant"}
_ALONE = 20  # characters from which a text that stands inside another is no coincidence
_PYTHON = re.compile(r"\A\[?\{\s*'(?:role|from|content|value)'")


def prompt_of(raw: Row, *, without: Iterable[str] = (), tools: Sequence[Row] | None = None) -> list[Message]:
    """The messages that ask, from all fields of the row but those of `without`; none where it has no prompt.

    Raises RowError for a part that cannot be read, and for two questions that differ.
    """
    keys = [key for key in (*SYSTEM, *HISTORY, *_PARTS) if key in raw and key not in without]
    if len(keys) == 1 and keys[0] in _PARTS:
        return _asked(raw[keys[0]], keys[0], tools)
    for key in keys:
        if key not in _PARTS or raw[key] is None or (key in MATTER and _are_passages(raw[key])):
            continue
        messages = _asked(raw[key], key, tools)
        if len(messages) > 1 or (messages and messages[0]["role"] != "user") or not isinstance(raw[key], str):
            return in_context(messages, raw, without={*without, key}, tools=tools)
    return in_context([], raw, without=without, tools=tools)


def in_context(
    messages: list[Message], raw: Row, *, without: Iterable[str] = (), tools: Sequence[Row] | None = None
) -> list[Message]:
    """A conversation with the parts of its prompt from other fields. The list itself when nothing does.

    Raises RowError for a text that neither stands in the conversation nor has a place in it.
    """
    if KEYS.isdisjoint(raw):
        return messages
    without = frozenset(without)
    keys = [key for key in _PARTS if key in raw and key not in without]
    made = list(messages)
    if any(message["role"] == "user" for message in made[: first_reply(made)]):
        for key in keys:
            _expect_inside(raw[key], key, made, tools)
    elif keys and (parts := _texts(raw, keys)) and not all(_inside(text, made) for text in parts.values()):
        made.insert(first_reply(made), {"role": "user", "content": _together(parts)})
    if history := _history(raw, without, tools):
        own = [message for message in made if message["role"] not in ("system", "developer")]
        if own[: len(history)] != history:
            made[len(made) - len(own) : len(made) - len(own)] = history
    for key, text in _texts(raw, [key for key in SYSTEM if key not in without]).items():
        own = [message for message in made if message["role"] in ("system", "developer")]
        if _inside(text, own):
            continue
        if own:
            raise RowError(key, "the text of the conversation's own system message", kind_of(text))
        made.insert(0, {"role": "system", "content": text})
    return made if len(made) != len(messages) else messages


def dialogue(value: Any, field: str, tools: Sequence[Row] | None = None) -> list[Message]:
    """A whole conversation, in any form. Raises RowError."""
    if not isinstance(value, str):
        return _listed(value, field, tools)
    messages = _of_text(value, field, tools, weak=True)
    if messages is None:
        raise RowError(field, "a list of messages", kind_of(value))
    return messages


def with_reply(messages: list[Message], raw: Row, tools: Sequence[Row] | None = None) -> list[Message]:
    """A conversation with the reply from another field. Raises RowError for a reply beside another one."""
    key = reply_key(raw)
    if key is None or raw[key] is None:
        return messages
    reply = replies(raw[key], key, messages, tools)
    if not messages or messages[-1]["role"] != "assistant":
        return [*messages, *reply]
    if key in ("completion", "response") and not all(_inside(text_of(message), messages) for message in reply):
        raise RowError(key, "the reply that ends the conversation beside it", kind_of(raw[key]))
    return messages


def reply_key(raw: Row) -> str | None:
    """The field with the one reply; names that may mean another thing count only where they hold text or messages."""
    if "completion" in raw:
        return "completion"
    return next((key for key in REPLIES if isinstance(raw.get(key), str) or is_dicts(raw.get(key))), None)


def text_dialogue(value: str, field: str) -> list[Message] | None:
    """The conversation that a text is; None for any other text. Raises RowError."""
    return _of_text(value, field, None)


def replies(
    value: Any, field: str, prompt: Sequence[Message] | None, tools: Sequence[Row] | None = None
) -> list[Message]:
    """What answers a prompt; without a prompt, a conversation whose end is the answer. Raises RowError.

    A text is read as a conversation only where it repeats the prompt or has none: a reply may well show one.
    """
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, str):
        if not isinstance(value, list):
            raise RowError(field, "text or a list of messages", kind_of(value))
        return read_messages(value, field, tools)
    if prompt:
        found = None if _PYTHON.match(value.lstrip()) else _stored(value, field, tools)
        if found is None and (value.lstrip()[:1] in "<#*[" or ":" in value or "：" in value):
            try:
                found = _of_text(value, field, tools)
            except RowError:
                found = None
            if found is not None and not _begins_with(found, prompt):
                found = None
        return found or [{"role": "assistant", "content": value}]
    return _of_text(value, field, tools, weak=True) or [{"role": "assistant", "content": value}]


def labelled(prompt: list[Message], raw: Row, sides: list[list[Message]]) -> tuple[list[Message], list[list[Message]]]:
    """Prompt and replies without the labels and marks that they have as turns of one transcript.

    That is where the row's prompt is a transcript, or one user's turn under a label and all replies have theirs.
    """
    stored = [raw[key] for key in _PARTS if isinstance(raw.get(key), str) and raw[key].strip()]
    if len(stored) != 1 or not prompt:
        return prompt, sides
    texts = [text_of(side[0]) if len(side) == 1 else "" for side in sides]
    bare = [reply_of(text) for text in texts]
    if prompt[-1].get("content") == stored[0]:
        asked = asked_of(stored[0])
        if not asked or not all(bare):
            return prompt, sides
        prompt = [*prompt[:-1], {"role": "user", "content": asked}]
    made = [
        [{**side[0], "content": without_end(text if own is None else own).strip()}] if text else side
        for side, text, own in zip(sides, texts, bare, strict=True)
    ]
    return prompt, made


def _asked(value: Any, field: str, tools: Sequence[Row] | None) -> list[Message]:
    """A prompt: text, a transcript, messages, or the JSON text of messages."""
    if value is None or value == "" or value == []:
        return []
    if isinstance(value, dict) and role_of(value) is not None:
        value = [value]
    if isinstance(value, list):
        return read_messages(value, field, tools) if is_dicts(value) else _listed(value, field, tools)
    if not isinstance(value, str):
        raise RowError(field, "text or a list of messages", kind_of(value))
    found = _of_text(value, field, tools, prompt=True)
    if found is not None and found[-1]["role"] == "assistant":
        raise RowError(field, "a prompt that ends with a turn of the user", "a transcript that ends with a reply")
    return found or ([{"role": "user", "content": value}] if value.strip() else [])


def _of_text(
    text: str, field: str, tools: Sequence[Row] | None, *, prompt: bool = False, weak: bool = False
) -> list[Message] | None:
    """The messages in a text: JSON or a transcript; None for a text that is neither."""
    stored = _stored(text, field, tools)
    if stored is not None:
        return stored
    try:
        turns = turns_of(text, prompt=prompt, weak=weak)
    except Ambiguous as error:
        raise RowError(field, "a transcript whose turns are clear, or a list of messages", str(error)) from None
    return None if turns is None else [_message(turn) for turn in turns]


def _message(turn: Turn) -> Message:
    return {"role": turn[0], "content": turn[1]}


def _stored(text: str, field: str, tools: Sequence[Row] | None) -> list[Message] | None:
    """Messages that are stored as JSON text; None for any other text."""
    begin = text.lstrip()[:1]
    if begin not in ("[", "{"):
        return None
    if _PYTHON.match(text.lstrip()):
        raise RowError(field, "messages as JSON text", "a list in Python's own notation")
    try:
        value = from_json(text)
    except ValueError:
        return None
    if isinstance(value, dict):
        inner = next((value[key] for key in _CONVERSATIONS if is_dicts(value.get(key))), None)
        value = inner if inner is not None else [value]
    if not value or not all(_is_message(item) for item in value):
        return None
    return read_messages(value, field, tools)


def _is_message(value: Any) -> bool:
    """A message of a known role that holds something, and not an object that happens to have a role."""
    return (
        isinstance(value, dict)
        and role_of(value) is not None
        and not {"content", "value", "tool_calls"}.isdisjoint(value)
    )


def _listed(value: Any, field: str, tools: Sequence[Row] | None) -> list[Message]:
    """A list of messages; of [question, answer] pairs; of objects with a key for each speaker."""
    items = expect_list(value, field, "a list of messages")
    if items and all(isinstance(item, list | tuple) and len(item) == 2 for item in items):
        pairs = [("user", item[0]) if not k else ("assistant", item[1]) for item in items for k in (0, 1)]
        return _spoken(pairs, field)
    if items and all(isinstance(item, dict) and item and role_of(item) is None for item in items):
        kinds = [[(_SPEAKERS.get(key.strip().lower(), ""), text) for key, text in item.items()] for item in items]
        if all(kind for item in kinds for kind, _ in item):
            roles = {"question": "user", "answer": "assistant", "input": "user"}
            return _spoken([(roles.get(kind, kind), text) for item in kinds for kind, text in item], field)
    return read_messages(items, field, tools)


def _spoken(turns: Iterable[tuple[str, Any]], field: str) -> list[Message]:
    messages: list[Message] = []
    for role, text in turns:
        if text is None or text == "":
            continue
        if not isinstance(text, str):
            raise RowError(field, "texts of turns", kind_of(text))
        messages.append({"role": role, "content": text})
    return messages


def _history(raw: Row, without: frozenset[str], tools: Sequence[Row] | None) -> list[Message]:
    """The earlier messages."""
    for key in HISTORY:
        value = raw.get(key)
        if value and key not in without:
            found = _of_text(value, key, tools, prompt=True) if isinstance(value, str) else None
            if isinstance(value, str) and found is None:
                raise RowError(key, "earlier turns", kind_of(value))
            return found or _turns_before(value, key, tools)
    return []


def _turns_before(value: Any, key: str, tools: Sequence[Row] | None) -> list[Message]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if len(value) % 2:
            raise RowError(key, "a question and an answer in turn", f"{len(value)} texts")
        return _spoken(((("user", "assistant")[i % 2], text) for i, text in enumerate(value)), key)
    return _listed(value, key, tools)


def _texts(raw: Row, keys: Iterable[str]) -> dict[str, str]:
    """The fields that hold text. Raises RowError for other values."""
    found: dict[str, str] = {}
    for key in keys:
        value = raw.get(key)
        if value is None or value == "" or value == [] or value == {}:
            continue
        if _are_passages(value):
            value = "\n\n".join(value)
        if not isinstance(value, str):
            raise RowError(key, "text", kind_of(value))
        if value.strip():
            found[key] = value
    return found


def _are_passages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _together(parts: dict[str, str]) -> str:
    """What the user says, from its parts. Raises RowError for two questions that differ."""
    kept: dict[str, str] = {}
    for key, text in parts.items():
        others = [other for name, other in parts.items() if name != key]
        if any(_squeezed(text) == _squeezed(other) for other in kept.values()):
            continue
        if (key in ASKED or len(text) >= _ALONE) and any(
            len(other) > len(text) and _within(text, other) for other in others
        ):
            continue
        kept[key] = text
    asked = [key for key in ASKED if key in kept]
    if len(asked) > 1:
        raise RowError(asked[1], f"the text of {asked[0]!r}, or no text", kind_of(kept[asked[1]]))
    return "\n\n".join(kept.values())


def _expect_inside(value: Any, key: str, messages: Sequence[Message], tools: Sequence[Row] | None) -> None:
    """Raises RowError for a text, or for messages, that a conversation which has a question does not hold."""
    if not (isinstance(value, str) or is_dicts(value)):
        return  # numbers and objects beside a conversation describe it
    if isinstance(value, str) and (not value.strip() or _inside(value, messages)):
        return
    if isinstance(value, list) and role_of(value[0]) is None:
        return
    if not all(_inside(text_of(message), messages) for message in _asked(value, key, tools)):
        raise RowError(key, "a text that occurs in the conversation beside it", kind_of(value))


def _inside(text: str, messages: Iterable[Message]) -> bool:
    return any(_within(text, text_of(message)) for message in messages)


def _within(text: str, other: str) -> bool:
    """Does a text occur in another one, as whole words, white space aside?"""
    part, whole = _squeezed(text), _squeezed(other)
    place = whole.find(part)
    while place >= 0:
        end = place + len(part)
        if not _one_word(whole[max(place - 1, 0) : place], part[:1]) and not _one_word(part[-1:], whole[end : end + 1]):
            return True
        place = whole.find(part, place + 1)
    return False


def _one_word(a: str, b: str) -> bool:
    """Are two characters within one word? Never in scripts without blanks."""
    return bool(a and b) and a.isalnum() and b.isalnum() and a < "\u0e00" and b < "\u0e00"


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _begins_with(messages: Sequence[Message], prompt: Sequence[Message]) -> bool:
    """Does a conversation repeat the prompt, and continue?"""
    own = [message for message in messages if message["role"] != "system"]
    asked = [message for message in prompt if message["role"] != "system"]
    return len(own) > len(asked) and all(
        a["role"] == b["role"] and _squeezed(text_of(a)) == _squeezed(text_of(b))
        for a, b in zip(own, asked, strict=False)
    )
