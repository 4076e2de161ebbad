"""tau-bench trajectories: {task_id, reward, info, traj, trial}, and tau2's simulations: {task_id, reward_info,
termination_reason, messages, trial}. The trials of one task make a group.
"""

from __future__ import annotations

from typing import Any

from atropos_cli.domain.finish import StopReason, cut_by
from atropos_cli.io.formats.common import (
    Format,
    first_reply,
    last_finish,
    new_record,
    read_score,
    side_fields,
    text_id,
    whole_rows,
)
from atropos_cli.io.formats.prompts import dialogue, in_context
from atropos_cli.io.records import Message, Record, Row, StoredRollout

_STRUCTURE = frozenset({"traj", "messages", "reward", "reward_info", "info"})
_REASONS = ("termination_reason", "stop_reason", "termination")
_STOP_MARKS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
_LEAVING = "transfer_to_human_agents"

_ENDED = frozenset({
    "user_stop", "agent_stop", "done", "success", "completed", "stop", "transfer", "user_transfer", "out_of_scope",
    "too_many_errors", "agent_error", "invalid_agent_message", "agent_invalid_action",
})  # fmt: skip
"""The conversation came to its end, or the agent itself broke it off: its score counts."""
_LIMITS = frozenset({"max_steps", "max_turns", "step_limit", "max_num_steps", "timeout", "time_limit"})
_OUTSIDE = (
    "user",
    "infrastructure",
    "environment",
    "env",
    "simulator",
    "unexpected",
    "llm",
    "api",
    "judge",
    "evaluator",
)
"""Whose error it was, where it was not the agent's."""


def matches(raw: Row) -> bool:
    if isinstance(raw.get("traj"), list | str):
        return True
    return "termination_reason" in raw and isinstance(raw.get("messages"), list) and "task_id" in raw


def read(raw: Row, source: str, line: int) -> Record:
    """A Record of one trajectory. Raises RowError.

    An error of the simulated user, of a server or of the environment is a failure without a score: it says nothing of
    the agent, whatever reward stands beside it.
    """
    key = "traj" if "traj" in raw else "messages"
    record = new_record(raw, "taubench", source, line)
    messages = in_context(dialogue(raw[key], key, record.tools), raw, tools=record.tools)
    trial = text_id(raw.get("trial"))
    if record.task_id is not None and trial is not None:
        record.id = f"{record.task_id}.{trial}"
    info: Row = raw["info"] if isinstance(raw.get("info"), dict) else {}
    verdict = raw.get("reward_info")
    record.info = {**side_fields(raw, _STRUCTURE), **info}
    stored = raw.get("reward", verdict.get("reward") if isinstance(verdict, dict) else None)
    score, odd = read_score(stored, "reward")
    failure = _failure(raw, info)
    record.non_finite = [0] if odd and failure is None else []
    record.rollouts.append(
        StoredRollout(
            messages=messages,
            score=score if failure is None else None,
            raw=raw,
            prompt_length=first_reply(messages),
            finish_reason=last_finish(messages),
            stop_reason=_stop(raw, info, messages) if failure is None else None,
            failure=failure,
        )
    )
    record.cut = whole_rows
    return record


def _said(raw: Row, info: Row) -> str:
    """The stated reason of the end, in small letters and with underscores; "" without one."""
    for place in (raw, info):
        for key in _REASONS:
            value = place.get(key)
            if isinstance(value, str) and value.strip():
                return value.strip().rpartition(".")[2].lower().replace("-", "_").replace(" ", "_")
    return ""


def _failure(raw: Row, info: Row) -> Row | None:
    """A failure outside the agent; None when there is none."""
    reason = _said(raw, info)
    error = next((info[key] for key in ("error", "exception") if info.get(key)), None) or raw.get("error")
    outside = reason not in _ENDED and "error" in reason and reason.startswith(_OUTSIDE)
    if reason in ("user_error", "infrastructure_error", "unexpected_error", "error") or outside or error:
        kind = reason or "error"
        text: Any = error if isinstance(error, str) else kind
        return {"stage": "environment", "type": kind, "message": text[:2000]}
    return None


def _stop(raw: Row, info: Row, messages: list[Message]) -> StopReason | None:
    """How the conversation ended: by the stated reason, else by whether the environment judged it."""
    reason = _said(raw, info)
    if reason:
        if reason in _ENDED:
            return "done"
        return "step_limit" if reason in _LIMITS else cut_by(reason) or "done"
    if "reward_info" in info:  # the first version judges what came to its end, and nothing else
        return "done" if info["reward_info"] is not None else "step_limit"
    return "done" if _left(messages) else None


def _left(messages: list[Message]) -> bool:
    """Did the user end the conversation, or the agent by handing over?"""
    last = messages[-1] if messages else None
    if last is None:
        return False
    text = last.get("content")
    if last["role"] == "user" and isinstance(text, str) and any(mark in text for mark in _STOP_MARKS):
        return True
    calls = [call["function"]["name"] for message in messages[-2:] for call in message.get("tool_calls") or ()]
    return _LEAVING in calls


FORMAT = Format("taubench", False, matches, read, "tau-bench trajectories: {task_id, reward, traj, trial}")
