"""OpenAI messages rows: {messages: [{role, content}], system?, tools?, score?}; `history` (SWE-agent) is read alike.

The conversation may be JSON text or a transcript, too.
"""

from __future__ import annotations

from atropos_cli.io.formats.common import (
    Format,
    first_reply,
    is_dicts,
    new_record,
    read_finish,
    read_score,
    side_fields,
    whole_rows,
)
from atropos_cli.io.formats.prompts import HISTORY, KEYS, REPLIES, SYSTEM, dialogue, in_context, with_reply
from atropos_cli.io.records import Record, Row, StoredRollout

_STRUCTURE = frozenset({"messages", "history", "tools", "score", "reward", "trajectory"})
_PARTS = frozenset((*KEYS, *REPLIES)) - {*HISTORY, *SYSTEM}


def matches(raw: Row) -> bool:
    if isinstance(raw.get("messages"), list | str):
        return True
    # Beside a question or a reply, it is what was said before.
    return is_dicts(raw.get("history")) and _PARTS.isdisjoint(raw)


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of one conversation. Raises RowError."""
    key = "messages" if "messages" in raw else "history"
    record = new_record(raw, "messages", source, line)
    messages = with_reply(dialogue(raw[key], key, record.tools), raw, record.tools)
    messages = in_context(messages, raw, without=(key,), tools=record.tools)
    record.info = side_fields(raw, _STRUCTURE)
    score, odd = read_score(raw.get("score", raw.get("reward")), "score" if "score" in raw else "reward")
    record.non_finite = [0] if odd else []
    record.rollouts.append(
        StoredRollout(
            messages=messages,
            score=score,
            raw=raw,
            prompt_length=first_reply(messages),
            finish_reason=read_finish(raw, messages),
        )
    )
    record.cut = whole_rows
    return record


FORMAT = Format("messages", False, matches, read, "OpenAI messages rows: {messages: [{role, content}]}")
