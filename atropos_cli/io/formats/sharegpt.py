"""ShareGPT rows: {conversations: [{from, value}], system?, tools?, chosen?, rejected?}.

All role names in `common.ROLES` are known, and role/content beside from/value. The conversation may be JSON text or a
transcript, too.
"""

from __future__ import annotations

from atropos_cli.io.formats.common import (
    Format,
    first_reply,
    new_record,
    read_finish,
    read_score,
    side_fields,
    whole_rows,
)
from atropos_cli.io.formats.prompts import dialogue, in_context, replies, with_reply
from atropos_cli.io.formats.toolcalls import link_tool_results
from atropos_cli.io.records import Record, Row, StoredRollout

_STRUCTURE = frozenset({"conversations", "conversation", "system", "tools", "chosen", "rejected", "score", "reward"})


def matches(raw: Row) -> bool:
    return "conversations" in raw or isinstance(raw.get("conversation"), list | str)


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of one conversation, or of two when the row has chosen and rejected. Raises RowError."""
    key = "conversations" if "conversations" in raw else "conversation"
    record = new_record(raw, "sharegpt", source, line)
    messages = with_reply(dialogue(raw[key], key, record.tools), raw, record.tools)
    messages = in_context(messages, raw, tools=record.tools)
    record.info = side_fields(raw, _STRUCTURE)
    if raw.get("chosen") is not None and raw.get("rejected") is not None:
        for i, label in enumerate(("chosen", "rejected")):
            reply = replies(raw[label], label, messages, record.tools)
            both = [*messages, *reply]
            link_tool_results(both)
            score, odd = read_score(raw.get(f"score_{label}"), f"score_{label}")
            if odd:
                record.non_finite.append(i)
            record.rollouts.append(
                StoredRollout(messages=both, score=score, raw=raw, index=i, prompt_length=len(messages), label=label)
            )
        record.cut = lambda record, kept: [record.raw] if len(kept) == 2 else []
        return record
    score, odd = read_score(raw.get("score", raw.get("reward")), "score")
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


FORMAT = Format("sharegpt", False, matches, read, "ShareGPT rows: {conversations: [{from, value}]}")
