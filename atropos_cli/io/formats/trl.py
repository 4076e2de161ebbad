"""TRL's rows: preference (prompt?, chosen, rejected), unpaired (prompt, completion, label), prompt-completion, text.

Prompts and completions are text or messages. LLaMA-Factory's chosen_messages / rejected_messages are read as
preference rows.
"""

from __future__ import annotations

from typing import Any

from atropos_cli.io.formats.common import (
    Format,
    RowError,
    new_record,
    read_finish,
    read_messages,
    read_score,
    side_fields,
    whole_rows,
)
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Attempt, Message, Record, Row

_PAIRS = (("chosen", "rejected"), ("chosen_messages", "rejected_messages"))
_PAIR_FIELDS = frozenset({"prompt", "tools", *(key for pair in _PAIRS for key in pair)})
_FIELDS = frozenset({"prompt", "completion", "label", "text", "tools", "score", "reward", "finish_reason"})


def matches_preference(raw: Row) -> bool:
    return any(chosen in raw and rejected in raw for chosen, rejected in _PAIRS)


def read_preference(raw: Row, source: str, line: int) -> Record:
    """Two attempts, labelled chosen and rejected; scores when the row has score_chosen and score_rejected.

    Without an explicit prompt, the prompt is the messages both sides share, and ends before an assistant message.
    """
    keys = next(pair for pair in _PAIRS if pair[0] in raw)
    sides = [_messages(raw[key], key, "assistant") for key in keys]
    prompt = _messages(raw["prompt"], "prompt", "user") if raw.get("prompt") is not None else None
    if prompt is None:
        length = shared_prompt(*sides)
    else:
        # Some sets repeat the prompt at the head of both sides.
        repeated = all(side[: len(prompt)] == prompt and len(side) > len(prompt) for side in sides)
        sides = sides if repeated else [prompt + side for side in sides]
        length = len(prompt)
    record = new_record(raw, "preference", source, line)
    record.info = side_fields(raw, _PAIR_FIELDS)
    for i, (side, label) in enumerate(zip(sides, ("chosen", "rejected"), strict=True)):
        score, odd = read_score(raw.get(f"score_{label}"), f"score_{label}")
        if odd:
            record.non_finite.append(i)
        record.attempts.append(Attempt(messages=side, score=score, raw=raw, index=i, prompt_length=length, label=label))
    # Half a pair is not a row.
    record.cut = lambda record, kept: [record.raw] if len(kept) == 2 else []
    return record


def shared_prompt(a: list[Message], b: list[Message]) -> int:
    """How many leading messages two conversations share, cut back until both go on with an assistant message."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    while length > 0 and not all(len(side) > length and side[length]["role"] == "assistant" for side in (a, b)):
        length -= 1
    return length


def matches_completion(raw: Row) -> bool:
    return "completion" in raw and not isinstance(raw.get("completions"), list)


def read_completion(raw: Row, source: str, line: int) -> Record:
    """One attempt. A boolean label is its score (1.0 or 0.0) when the row has none."""
    prompt = _messages(raw["prompt"], "prompt", "user") if raw.get("prompt") is not None else []
    if not prompt:
        question = next(
            (raw[key] for key in ("question", "problem", "query", "instruction") if isinstance(raw.get(key), str)), None
        )
        prompt = [{"role": "user", "content": question}] if question is not None else []
        if prompt and isinstance(raw.get("system"), str) and raw["system"]:
            prompt.insert(0, {"role": "system", "content": raw["system"]})
    completion: Any = raw["completion"]
    reply = (
        [{"role": "assistant", "content": None}]
        if completion is None
        else _messages(completion, "completion", "assistant")
    )
    label = raw.get("label")
    stored = raw.get("score", raw.get("reward"))
    if stored is None and isinstance(label, bool):
        stored = float(label)
    score, odd = read_score(stored, "score")
    record = new_record(raw, "completion", source, line)
    record.info = side_fields(raw, _FIELDS)
    record.non_finite = [0] if odd else []
    record.attempts.append(
        Attempt(
            messages=prompt + reply,
            score=score,
            raw=raw,
            prompt_length=len(prompt),
            finish_reason=read_finish(raw, reply),
        )
    )
    record.cut = whole_rows
    return record


def matches_text(raw: Row) -> bool:
    return isinstance(raw.get("text"), str)


def read_text(raw: Row, source: str, line: int) -> Record:
    """One attempt whose only message is the whole text (as an assistant message: all of it is trained on)."""
    score, odd = read_score(raw.get("score", raw.get("reward")), "score")
    record = new_record(raw, "text", source, line)
    record.info = side_fields(raw, _FIELDS)
    record.non_finite = [0] if odd else []
    message: Message = {"role": "assistant", "content": raw["text"]}
    record.attempts.append(Attempt(messages=[message], score=score, raw=raw, finish_reason=read_finish(raw, [])))
    record.cut = whole_rows
    return record


def _messages(value: Any, field: str, role: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise RowError(field, "text or a list of messages", kind_of(value))
    return read_messages(value, field)


PREFERENCE = Format(
    "preference", False, matches_preference, read_preference, "TRL preference rows: {prompt?, chosen, rejected}"
)
COMPLETION = Format(
    "completion",
    False,
    matches_completion,
    read_completion,
    "rows with one completion: {prompt or question, completion, label?, answer?}",
)
TEXT = Format("text", False, matches_text, read_text, "TRL text rows: {text}")
