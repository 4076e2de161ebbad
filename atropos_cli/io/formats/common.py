"""What all formats share: row errors, message shapes, role names, ids."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic_core import from_json

from atropos_cli.domain.finish import FINISH_KEYS, finish_in, finish_of
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Attempt, Message, Record, Row

ROLES: dict[str, str] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "environment": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "observation": "tool",
    "function": "tool",
    "ipython": "tool",
}
"""Role names of all dialects, and the OpenAI role each stands for; function_call is an assistant's tool call."""

_PLAIN = frozenset({"system", "user", "assistant", "developer", "tool"})
_WEIGHTS = ("weight", "loss_weight", "train", "trainable")
FINISH_FIELDS = frozenset(FINISH_KEYS)
ID_KEYS = ("group_id", "item_id", "id", "uid", "unique_id", "conversation_id", "idx")
TASK_KEYS = ("task_id", "item_id", "question_id", "problem_id", "prompt_id")
ENV_KEYS = ("env", "environment", "env_name", "data_source", "dataset_name")
NAME_KEYS = ("task_name", "bootcamp_name", "bootcamp_names")
ANSWER_KEYS = ("answer", "ground_truth", "gold", "gt", "target", "reference_answer", "answer_key")


class RowError(Exception):
    """A row that is JSON, but not of its format: the field, what was expected there, and what was found."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.field = field
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True)
class Format:
    """A row format: how to know it, read it. `group`: one row holds a whole group of attempts."""

    name: str
    group: bool
    matches: Callable[[Row], bool]
    read: Callable[[Row, str, int], Record]
    summary: str


def expect_list(value: Any, field: str, what: str = "a list") -> list[Any]:
    if not isinstance(value, list):
        raise RowError(field, what, kind_of(value))
    return value


def is_dicts(value: Any) -> bool:
    """A list that begins with an object."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def read_messages(value: Any, field: str) -> list[Message]:
    """Messages of any dialect in the OpenAI shape. A list that has it already is returned itself: do not change it."""
    if type(value) is list and _all_plain(value):
        return value
    messages = [
        _message(item, f"{field}[{i}]") for i, item in enumerate(expect_list(value, field, "a list of messages"))
    ]
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


def _message(item: Any, field: str) -> Message:
    if not isinstance(item, dict):
        raise RowError(field, "a message", kind_of(item))
    name = item.get("role", item.get("from"))
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise RowError(f"{field}.role", _known_role(name), kind_of(name))
    key = "content" if "content" in item or "value" not in item else "value"
    message: Message = {"role": role, "content": None}
    content = item.get(key)
    if name == "function_call":
        message["tool_calls"] = calls_of_text(content, f"{field}.{key}")
    elif isinstance(content, list):
        _read_parts(message, content, f"{field}.{key}")
    elif content is None or isinstance(content, str):
        message["content"] = content
    else:
        raise RowError(f"{field}.{key}", "text, content parts or null", kind_of(content))
    _read_extras(message, item, field)
    return message


def _known_role(name: Any) -> str:
    close = get_close_matches(name, ROLES, n=1) if isinstance(name, str) else []
    return f"{close[0]!r}" if close else "one of " + ", ".join(ROLES)


def _read_parts(message: Message, parts: list[Any], field: str) -> None:
    """Content parts: texts are joined by newlines, unless a part is no text (an image): then all stay parts."""
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
            calls += calls_of_text(text, f"{field}[{i}]")
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


def _read_extras(message: Message, item: Row, field: str) -> None:
    for key in ("reasoning", "reasoning_content", "thinking"):
        value = item.get(key)
        if isinstance(value, str) and value and "reasoning" not in message:
            message["reasoning"] = value
    calls = item.get("tool_calls")
    if calls:
        message["tool_calls"] = [
            _tool_call(call, f"{field}.tool_calls[{i}]")
            for i, call in enumerate(expect_list(calls, f"{field}.tool_calls"))
        ]
    elif isinstance(item.get("function_call"), dict):
        message["tool_calls"] = [_tool_call(item["function_call"], f"{field}.function_call")]
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
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise RowError(f"{field}.{key}", "a number", kind_of(value))
            message["weight"] = float(value)
            break


def _tool_call(call: Any, field: str) -> Row:
    if not isinstance(call, dict):
        raise RowError(field, "a tool call", kind_of(call))
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowError(
            f"{field}.function.name", "text", kind_of(function.get("name") if isinstance(function, dict) else function)
        )
    arguments = function.get("arguments", function.get("parameters", {}))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    ident = call.get("id")
    return {
        "id": ident if isinstance(ident, str) else None,
        "type": "function",
        "function": {"name": function["name"], "arguments": text},
    }


def calls_of_text(value: Any, field: str) -> list[Row]:
    """Tool calls from JSON text (or the value itself): one {name, arguments} object, or a list of them."""
    if isinstance(value, str):
        try:
            value = from_json(value)
        except ValueError:
            raise RowError(field, "the JSON of a function call", kind_of(value)) from None
    calls = value if isinstance(value, list) else [value]
    return [_tool_call(call, field) for call in calls]


def link_tool_results(messages: Sequence[Message]) -> None:
    """Give calls and results without ids matching ones (call_0, call_1, ...), in their order."""
    made = 0
    waiting: list[str] = []
    for message in messages:
        for call in message.get("tool_calls") or ():
            if not call.get("id"):
                call["id"] = f"call_{made}"
            made += 1
            waiting.append(call["id"])
        if message["role"] == "tool":
            ident = message.get("tool_call_id")
            if ident is None and waiting:
                message["tool_call_id"] = waiting.pop(0)
            elif ident in waiting:
                waiting.remove(ident)


def read_tools(value: Any, field: str = "tools") -> list[Row] | None:
    """The tools of a row: a list, or the JSON text of one."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = from_json(value)
        except ValueError:
            raise RowError(field, "a list of tools or its JSON text", kind_of(value)) from None
    tools = expect_list(value, field, "a list of tools or its JSON text")
    return [
        {"type": "function", "function": tool} if "function" not in tool and "name" in tool else tool for tool in tools
    ] or None


def read_score(value: Any, field: str) -> tuple[float | None, bool]:
    """(score, non-finite): a number, a boolean or null; NaN and Infinity give (None, True)."""
    if isinstance(value, float | int):
        number = float(value)
        return (number, False) if math.isfinite(number) else (None, True)
    if value is None:
        return None, False
    if isinstance(value, str) and value.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return None, True
    raise RowError(field, "a number or null", kind_of(value))


def first_reply(messages: Sequence[Message]) -> int:
    """Where the first assistant message stands; the number of messages when there is none."""
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
    (*ID_KEYS, *TASK_KEYS, *ENV_KEYS, *NAME_KEYS, *ANSWER_KEYS, "info", "model", "seed", "episode_id", "turn", "tools")
)


def new_record(raw: Row, format: str, source: str, line: int) -> Record:
    """A record with the fields that rows of any format may carry under well-known names."""
    if _WELL_KNOWN.isdisjoint(raw):
        return Record(id=f"{source}:{line}", raw=raw, format=format, source=source, line=line)
    ident = next((found for key in ID_KEYS if (found := text_id(raw.get(key))) is not None), None)
    info = raw.get("info")
    env = first_of(raw, ENV_KEYS)
    name = first_of(raw, NAME_KEYS) or (info.get("task_name") if isinstance(info, dict) else None)
    if isinstance(name, list) and name:
        name = name[0]
    model, seed, episode, turn = raw.get("model"), raw.get("seed"), raw.get("episode_id"), raw.get("turn")
    return Record(
        id=ident if ident is not None else f"{source}:{line}",
        raw=raw,
        format=format,
        task_id=next((found for key in TASK_KEYS if (found := text_id(raw.get(key))) is not None), None),
        env=env if isinstance(env, str) else None,
        task_name=name if isinstance(name, str) else None,
        source=source,
        line=line,
        model=model if isinstance(model, str) else None,
        seed=seed if isinstance(seed, int) else None,
        episode_id=episode if isinstance(episode, str) else None,
        turn=turn if isinstance(turn, int) else None,
        answer=first_of(raw, ANSWER_KEYS),
        tools=read_tools(raw["tools"]) if raw.get("tools") else None,
    )


def side_fields(raw: Row, known: frozenset[str]) -> Row:
    """What a reward may want to see of a row: all its fields but the known ones."""
    return {key: value for key, value in raw.items() if key not in known}


def whole_rows(record: Record, kept: Sequence[Attempt]) -> list[Row]:
    """`cut` of formats with one attempt a row: each attempt's own row."""
    return [attempt.raw for attempt in kept]


def read_finish(raw: Row, messages: Sequence[Message]) -> str | None:
    """The finish reason of a row with one attempt: its own field, or that of its last reply."""
    reason = None if FINISH_FIELDS.isdisjoint(raw) else finish_in(raw)
    return reason or last_finish(messages)


def last_finish(messages: Sequence[Message]) -> str | None:
    """The finish reason of the last reply of a conversation."""
    for message in reversed(messages):
        if message["role"] == "assistant":
            return None if len(message) == 2 else finish_in(message)
    return None


def finish_at(raw: Row, index: int, count: int) -> str | None:
    """The finish reason of one attempt of a row with lists: its entry in a list of reasons, one for each attempt."""
    for key in ("finish_reasons", *FINISH_KEYS):
        reasons = raw.get(key)
        if isinstance(reasons, list) and len(reasons) == count:
            return finish_of(reasons[index])
    return None


def cut_history(raw: Row, kept: Sequence[Attempt], count: int) -> None:
    """Cut the scores that earlier scorers gave (`score_history`) with their attempts; the list itself stays."""
    history = raw.get("score_history")
    if isinstance(history, list):
        raw["score_history"] = [
            {**entry, "scores": [entry["scores"][attempt.index] for attempt in kept]}
            if isinstance(entry, dict) and isinstance(entry.get("scores"), list) and len(entry["scores"]) == count
            else entry
            for entry in history
        ]
