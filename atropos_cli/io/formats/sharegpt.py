"""ShareGPT rows: {conversations: [{from, value}], system?, tools?, chosen?, rejected?}.

All role names in `common.ROLES` are known, and role/content beside from/value.
"""

from __future__ import annotations

from typing import Any

from atropos_cli.io.formats.common import (
    Format,
    RowError,
    first_reply,
    link_tool_results,
    new_record,
    read_finish,
    read_messages,
    read_score,
    side_fields,
    whole_rows,
)
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Attempt, Message, Record, Row

_STRUCTURE = frozenset({"conversations", "conversation", "system", "tools", "chosen", "rejected", "score", "reward"})


def matches(raw: Row) -> bool:
    return "conversations" in raw or ("conversation" in raw and isinstance(raw["conversation"], list))


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of one conversation, or of two when the row has chosen and rejected. Raises RowError."""
    key = "conversations" if "conversations" in raw else "conversation"
    messages = read_messages(raw[key], key)
    system = raw.get("system")
    if isinstance(system, str) and system and not (messages and messages[0]["role"] == "system"):
        messages = [{"role": "system", "content": system}, *messages]
    record = new_record(raw, "sharegpt", source, line)
    record.info = side_fields(raw, _STRUCTURE)
    if raw.get("chosen") is not None and raw.get("rejected") is not None:
        for i, label in enumerate(("chosen", "rejected")):
            reply = _reply(raw[label], label)
            both = [*messages, *reply]
            link_tool_results(both)
            score, odd = read_score(raw.get(f"score_{label}"), f"score_{label}")
            if odd:
                record.non_finite.append(i)
            record.attempts.append(
                Attempt(messages=both, score=score, raw=raw, index=i, prompt_length=len(messages), label=label)
            )
        record.cut = lambda record, kept: [record.raw] if len(kept) == 2 else []
        return record
    score, odd = read_score(raw.get("score", raw.get("reward")), "score")
    record.non_finite = [0] if odd else []
    record.attempts.append(
        Attempt(
            messages=messages,
            score=score,
            raw=raw,
            prompt_length=first_reply(messages),
            finish_reason=read_finish(raw, messages),
        )
    )
    record.cut = whole_rows
    return record


def _reply(value: Any, field: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise RowError(field, "text, a message or messages", kind_of(value))
    return read_messages(value, field)


FORMAT = Format("sharegpt", False, matches, read, "ShareGPT rows: {conversations: [{from, value}]}")
