"""tau-bench trajectories: {task_id, reward, info, traj, trial}. The trials of one task make a group."""

from __future__ import annotations

from atropos_cli.io.formats.common import (
    Format,
    first_reply,
    new_record,
    read_score,
    side_fields,
    text_id,
    whole_rows,
)
from atropos_cli.io.formats.prompts import dialogue, in_context
from atropos_cli.io.records import Attempt, Record, Row

_STRUCTURE = frozenset({"traj", "reward", "info"})


def matches(raw: Row) -> bool:
    return isinstance(raw.get("traj"), list | str)


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of one trajectory. Raises RowError."""
    record = new_record(raw, "taubench", source, line)
    messages = in_context(dialogue(raw["traj"], "traj", record.tools), raw, tools=record.tools)
    trial = text_id(raw.get("trial"))
    if record.task_id is not None and trial is not None:
        record.id = f"{record.task_id}.{trial}"
    info = raw.get("info")
    record.info = {**side_fields(raw, _STRUCTURE), **(info if isinstance(info, dict) else {})}
    score, odd = read_score(raw.get("reward"), "reward")
    record.non_finite = [0] if odd else []
    record.attempts.append(Attempt(messages=messages, score=score, raw=raw, prompt_length=first_reply(messages)))
    record.cut = whole_rows
    return record


FORMAT = Format("taubench", False, matches, read, "tau-bench trajectories: {task_id, reward, traj, trial}")
