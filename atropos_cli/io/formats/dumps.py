"""Groups as NousResearch's atropos environments dump them: {item_id, rollouts: [{conversation, score, ...}]}.

item_id may be the name of a task family instead of one item, so the task is told by its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atropos_cli.io.formats.common import (
    ANSWER_KEYS,
    Format,
    expect_list,
    first_of,
    first_reply,
    new_record,
    read_score,
    side_fields,
)
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.prompts import dialogue, in_context
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Record, Row, StoredRollout

_DIALOGUES = ("conversation", "messages", "conversations", "trajectory")
_SCORES = ("score", "reward")
_ANSWERS = (*ANSWER_KEYS, "expected_answer", "expected")
_STRUCTURE = frozenset((*_DIALOGUES, *_SCORES, "stop_reason", "finish_reason", "text"))


def matches(raw: Row) -> bool:
    rollouts = raw.get("rollouts")
    return (
        isinstance(rollouts, list)
        and bool(rollouts)
        and isinstance(rollouts[0], dict)
        and any(isinstance(rollouts[0].get(key), list | str) for key in _DIALOGUES)
    )


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of all rows. Raises RowError."""
    record = new_record(raw, "dump", source, line)
    record.task_id = None
    rows = expect_list(raw["rollouts"], "rollouts", "a list of rollouts")
    for i, row in enumerate(rows):
        record.rollouts.append(_rollout(row, i, record))
    first = side_fields(rows[0], _STRUCTURE)
    shared = {key: value for key, value in first.items() if all(other.get(key) == value for other in rows)}
    record.info = {**shared, **side_fields(raw, frozenset({"rollouts"}))}
    if record.answer is None:
        record.answer = first_of(shared, _ANSWERS)
    record.cut = _cut
    return record


def _rollout(rollout: Any, index: int, record: Record) -> StoredRollout:
    field = f"rollouts[{index}]"
    if not isinstance(rollout, dict):
        raise RowError(field, "a rollout object", kind_of(rollout))
    key = next((key for key in _DIALOGUES if rollout.get(key)), _DIALOGUES[0])
    messages = dialogue(rollout.get(key), f"{field}.{key}", record.tools)
    messages = in_context(messages, record.raw, tools=record.tools)
    name = next((name for name in _SCORES if rollout.get(name) is not None), _SCORES[0])
    score, odd = read_score(rollout.get(name), f"{field}.{name}")
    if odd:
        record.non_finite.append(index)
    reason = first_of(rollout, ("finish_reason", "stop_reason"))
    if reason is None and messages:
        reason = messages[-1].get("finish_reason")
    return StoredRollout(
        messages=messages,
        score=score,
        raw=rollout,
        index=index,
        prompt_length=first_reply(messages),
        finish_reason=reason if isinstance(reason, str) else None,
    )


def _cut(record: Record, kept: Sequence[StoredRollout]) -> list[Row]:
    return [{**record.raw, "rollouts": [rollout.raw for rollout in kept]}]


FORMAT = Format("dump", True, matches, read, "dumped groups: {item_id, rollouts: [{conversation, score}]}")
