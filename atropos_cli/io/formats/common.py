"""What all formats share: row errors, message shapes, role names, ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from atropos_cli.domain.base import is_finite, is_value
from atropos_cli.domain.finish import FINISH_KEYS, finish_in, finish_of
from atropos_cli.domain.task import KIND_KEYS, kind_of_row
from atropos_cli.domain.tokendata import ids_fault, logprobs_fault
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.toolcalls import (
    TOOL_KEYS,
    calls_of_text,
    join_calls,
    join_thoughts,
    link_tool_results,
    read_call,
    tools_of,
)
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Message, Record, Row, StoredRollout

ROLES: dict[str, str] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "environment": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "claude": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool_calls": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function": "tool",
    "ipython": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "tool_result": "tool",
}
"""Role names of all dialects, in any case, and the OpenAI role each stands for."""
_CALLS = frozenset(("function_call", "tool_call", "tool_calls"))
"""Roles whose text is the JSON of an assistant's calls."""

_PLAIN = frozenset({"system", "user", "assistant", "developer", "tool"})
_WEIGHTS = ("weight", "loss_weight", "train", "trainable")
FINISH_FIELDS = frozenset(FINISH_KEYS)
ID_KEYS = ("group_id", "item_id", "id", "uid", "unique_id", "conversation_id", "idx")
TASK_KEYS = ("task_id", "item_id", "question_id", "problem_id", "prompt_id")
ENV_KEYS = ("env", "environment", "env_name", "data_source", "dataset_name")
ANSWER_KEYS = ("answer", "ground_truth", "gold", "gt", "gts", "target", "reference_answer", "answer_key")


@dataclass(frozen=True, slots=True)
class Format:
    """A row format: how to know it, read it. `group`: one row holds a whole group of rollouts."""

    name: str
    group: bool
    matches: Callable[[Row], bool]
    read: Callable[[Row, str, int], Record]
    summary: str


def expect_list(value: Any, field: str, what: str = "a list") -> list[Any]:
    if not isinstance(value, list):
        raise RowError(field, what, kind_of(value))
    return value


def expect_ids(ids: Any, field: str) -> list[int]:
    """Token ids, unchanged. Raises RowError for anything else: nothing is converted."""
    found: list[int] = expect_list(ids, field, "a list of token ids")
    if (fault := ids_fault(found)) is not None:
        raise RowError(field, "token ids (integers from 0 to 2^31 - 1)", fault)
    return found


def expect_logprobs(logprobs: Any, field: str, count: int, other: str) -> None:
    """Raises RowError for invalid log-probabilities, or a list of another length; None: they are missing."""
    if logprobs is None:
        return
    expect_count(logprobs, field, count, other)
    if (fault := logprobs_fault(logprobs)) is not None:
        raise RowError(field, "log-probabilities (finite numbers)", fault)


def expect_count(value: Any, field: str, count: int, other: str) -> None:
    """Raises RowError for a list that has not one entry for each of another."""
    if len(expect_list(value, field)) != count:
        raise RowError(field, f"{count} {'entry' if count == 1 else 'entries'}, as many as {other}", str(len(value)))


def is_dicts(value: Any) -> bool:
    """A list that begins with an object."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def read_messages(value: Any, field: str, tools: Sequence[Row] | None = None) -> list[Message]:
    """Messages of any dialect in the OpenAI shape. A list that has it already is returned itself: do not change it.

    tools: the row's, which say whether a null among a call's arguments is a value. Calls made in one turn are one
    message.
    """
    if type(value) is list and _all_plain(value):
        return value
    items = enumerate(expect_list(value, field, "a list of messages"))
    messages = join_calls(join_thoughts([_message(item, f"{field}[{i}]", tools) for i, item in items]))
    link_tool_results(messages)
    return messages


def _all_plain(items: list[Any]) -> bool:
    """Are all of them {role, content} with text? Most are, and this is the fastest way to know."""
    try:
        for item in items:
            if len(item) != 2 or type(item["content"]) is not str or item["role"] not in _PLAIN:
                return False
    except (KeyError, TypeError, IndexError):
        return False
    return True


_CONTENTS = ("content", "value", "parts", "text")
"""Names of what a message says."""
_BESIDE_CONTENT = (
    *("tool_calls", "function_call", "refusal"),
    *("reasoning", "reasoning_content", "reasoning_details", "thinking"),
)


def role_of(item: Row) -> str | None:
    """The OpenAI role of a message of any dialect; None for a name that is unknown."""
    name = item.get("role", item.get("from"))
    return (ROLES.get(name) or ROLES.get(name.strip().lower())) if isinstance(name, str) else None


def _message(item: Any, field: str, tools: Sequence[Row] | None) -> Message:
    if not isinstance(item, dict):
        raise RowError(field, "a message", kind_of(item))
    name, role = item.get("role", item.get("from")), role_of(item)
    if role is None:
        raise RowError(f"{field}.role", _known_role(name), kind_of(name))
    key = next((key for key in _CONTENTS if key in item), None)
    if key is None and not any(item.get(other) for other in _BESIDE_CONTENT):
        raise RowError(f"{field}.content", "text, content parts or null", f"the keys {', '.join(list(item)[:6])}")
    key = key or "content"
    message: Message = {"role": role, "content": None}
    content = item.get(key)
    if str(name).strip().lower() in _CALLS and not item.get("tool_calls"):
        message["tool_calls"] = calls_of_text(content, f"{field}.{key}", tools)
    elif isinstance(content, list):
        _read_parts(message, content, f"{field}.{key}", tools)
    elif content is None or isinstance(content, str):
        message["content"] = content
    else:
        raise RowError(f"{field}.{key}", "text, content parts or null", kind_of(content))
    if role == "assistant" and item.get("channel") == "analysis" and isinstance(message["content"], str):
        message["reasoning"], message["content"] = message["content"], None  # gpt-oss: a thought, told as a message
    _read_extras(message, item, field, tools)
    return message


def _known_role(name: Any) -> str:
    close = get_close_matches(name, ROLES, n=1) if isinstance(name, str) else []
    return f"{close[0]!r}" if close else "one of " + ", ".join(ROLES)


def _read_parts(message: Message, parts: list[Any], field: str, tools: Sequence[Row] | None) -> None:
    """Content parts: texts are joined by newlines, unless a part is not text (an image): then all stay parts."""
    texts: list[str] = []
    kept: list[Row] = []
    calls: list[Row] = []
    for i, part in enumerate(parts):
        if isinstance(part, str):
            part = {"type": "text", "text": part}
        if not isinstance(part, dict):
            raise RowError(f"{field}[{i}]", "a content part", kind_of(part))
        kind = part.get("type", "text")
        text = part.get("text", part.get("value", part.get(kind) if isinstance(kind, str) else None))
        if kind in ("reasoning", "thinking") and isinstance(text, str):
            message["reasoning"] = f"{message['reasoning']}\n{text}" if "reasoning" in message else text
        elif kind in ("tool_call", "function_call"):
            calls += calls_of_text(text, f"{field}[{i}]", tools)
        elif kind in ("text", "input_text", "output_text"):
            if not isinstance(text, str):
                raise RowError(f"{field}[{i}].text", "text", kind_of(text))
            texts.append(text)
            kept.append({"type": "text", "text": text})
        else:
            kept.append(part)
    if calls:
        message["tool_calls"] = calls
    if len(texts) == len(kept):
        message["content"] = "\n".join(texts) if texts else None
    else:
        message["content"] = kept


def _read_extras(message: Message, item: Row, field: str, tools: Sequence[Row] | None) -> None:
    for key in ("reasoning", "reasoning_content", "thinking"):
        value = item.get(key)
        if isinstance(value, str) and value and "reasoning" not in message:
            message["reasoning"] = value
    details = item.get("reasoning_details")
    if isinstance(details, list) and "reasoning" not in message:
        texts = [part.get("text", part.get("summary")) for part in details if isinstance(part, dict)]
        if known := [text for text in texts if isinstance(text, str) and text]:
            message["reasoning"] = "\n".join(known)
    if not message["content"] and isinstance(item.get("refusal"), str):
        message["content"] = item["refusal"] or message["content"]
    calls = item.get("tool_calls")
    if calls:
        message["tool_calls"] = [
            read_call(call, f"{field}.tool_calls[{i}]", tools)
            for i, call in enumerate(expect_list(calls, f"{field}.tool_calls"))
        ]
    elif isinstance(item.get("function_call"), dict):
        message["tool_calls"] = [read_call(item["function_call"], f"{field}.function_call", tools)]
    results = item.get("tool_call_ids")
    result = item.get("tool_call_id") or (results[0] if isinstance(results, list) and results else None)
    if isinstance(result, str):
        message["tool_call_id"] = result
    if isinstance(item.get("name"), str):
        message["name"] = item["name"]
    if not FINISH_FIELDS.isdisjoint(item) and (reason := finish_in(item)) is not None:
        message["finish_reason"] = reason
    for key in _WEIGHTS:
        value = item.get(key)
        if value is not None:
            if not is_finite(value):
                raise RowError(f"{field}.{key}", "a number", kind_of(value))
            message["weight"] = float(value)
            break


def read_score(value: Any, field: str) -> tuple[float | None, bool]:
    """(score, non-finite): a number, a boolean or null; NaN and Infinity give (None, True)."""
    if isinstance(value, float | int):
        return (float(value), False) if is_value(value) else (None, True)
    if value is None:
        return None, False
    if isinstance(value, str) and value.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return None, True
    raise RowError(field, "a number or null", kind_of(value))


def first_reply(messages: Sequence[Message]) -> int:
    """The index of the first assistant message; the number of messages when there is none."""
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            return i
    return len(messages)


def first_of(raw: Row, keys: Iterable[str]) -> Any:
    """The value of the first key that is there and not null."""
    for key in keys:
        value = raw.get(key)
        if value is not None:
            return value
    return None


def text_id(value: Any) -> str | None:
    """An id as text: 7 and "7" are the same id. None for anything but text and whole numbers."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


_WELL_KNOWN = frozenset(
    (
        *ID_KEYS,
        *TASK_KEYS,
        *ENV_KEYS,
        *KIND_KEYS,
        *ANSWER_KEYS,
        *TOOL_KEYS,
        "reward_model",
        "info",
        "model",
        "seed",
        "episode_id",
        "turn",
    )
)


def new_record(raw: Row, format: str, source: str, line: int) -> Record:
    """A record with the fields that rows of any format may carry under well-known names."""
    if _WELL_KNOWN.isdisjoint(raw):
        return Record(id=f"{source}:{line}", raw=raw, format=format, source=source, line=line)
    ident = next((found for key in ID_KEYS if (found := text_id(raw.get(key))) is not None), None)
    env = first_of(raw, ENV_KEYS)
    model, seed, episode, turn = raw.get("model"), raw.get("seed"), raw.get("episode_id"), raw.get("turn")
    return Record(
        id=ident if ident is not None else f"{source}:{line}",
        raw=raw,
        format=format,
        task_id=next((found for key in TASK_KEYS if (found := text_id(raw.get(key))) is not None), None),
        env=env if isinstance(env, str) else None,
        task_name=kind_of_row(raw),
        source=source,
        line=line,
        model=model if isinstance(model, str) else None,
        seed=seed if isinstance(seed, int) else None,
        episode_id=episode if isinstance(episode, str) else None,
        turn=turn if isinstance(turn, int) else None,
        answer=_answer(raw),
        tools=tools_of(raw),
    )


def _answer(raw: Row) -> Any:
    """The gold answer: under a usual name, or where verl keeps it."""
    found = first_of(raw, ANSWER_KEYS)
    judged = raw.get("reward_model")
    return judged.get("ground_truth") if found is None and isinstance(judged, dict) else found


def side_fields(raw: Row, known: frozenset[str]) -> Row:
    """What a reward may want to see of a row: all its fields but the known ones."""
    return {key: value for key, value in raw.items() if key not in known}


def whole_rows(record: Record, kept: Sequence[StoredRollout]) -> list[Row]:
    """`cut` of formats with one rollout a row: each rollout's own row."""
    return [rollout.raw for rollout in kept]


def read_finish(raw: Row, messages: Sequence[Message]) -> str | None:
    """The finish reason of a row with one rollout: its own field, or that of its last reply."""
    reason = None if FINISH_FIELDS.isdisjoint(raw) else finish_in(raw)
    return reason or last_finish(messages)


def last_finish(messages: Sequence[Message]) -> str | None:
    """The finish reason of the last reply of a conversation."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return None if len(message) == 2 else finish_in(message)
    return None


def finish_at(raw: Row, index: int, count: int) -> str | None:
    """The finish reason of one rollout of a row with lists: its entry in a list of reasons, one for each rollout."""
    for key in ("finish_reasons", *FINISH_KEYS):
        reasons = raw.get(key)
        if isinstance(reasons, list) and len(reasons) == count:
            return finish_of(reasons[index])
    return None


def cut_history(raw: Row, kept: Sequence[StoredRollout], count: int) -> None:
    """Cut the scores that earlier scorers gave (`score_history`) with their rollouts; the list itself stays."""
    history = raw.get("score_history")
    if isinstance(history, list):
        raw["score_history"] = [
            {**entry, "scores": [entry["scores"][rollout.index] for rollout in kept]}
            if isinstance(entry, dict) and isinstance(entry.get("scores"), list) and len(entry["scores"]) == count
            else entry
            for entry in history
        ]
