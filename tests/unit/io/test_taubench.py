"""How tau-bench conversations ended: what is the agent's, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.io.formats import detect, read_as
from atropos_cli.io.formats.native import native_group
from atropos_cli.io.records import StoredRollout

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "done"}]
STOPPED = [*TALK, {"role": "user", "content": "Thanks! ###STOP###"}]
HANDED_OVER = [
    *TALK[:1],
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "transfer_to_human_agents", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "Transfer successful"},
]


def rollout(row: dict[str, Any]) -> StoredRollout:
    row = {"task_id": 3, "trial": 1, **row}
    form = detect(row)
    assert form is not None
    assert form.name == "taubench"
    record = read_as(form, row, "r", 1)
    ScoredGroup.model_validate(native_group(record))
    (found,) = record.rollouts
    return found


def first(info: dict[str, Any], traj: Any = TALK) -> dict[str, Any]:
    return {"traj": traj, "reward": 0.0, "info": info}


def second(reason: str) -> dict[str, Any]:
    return {"messages": TALK, "reward_info": {"reward": 0.0}, "termination_reason": reason}


@pytest.mark.parametrize(
    "row",
    [
        first({"error": "litellm.APIError: overloaded", "traceback": "..."}, []),
        first({"error": "Connection error."}, TALK),
        first({"exception": "RateLimitError", "reward_info": None}),
        second("user_error"),
        second("infrastructure_error"),
        second("TerminationReason.UNEXPECTED_ERROR"),
        second("user_simulator_error"),
        second("LLM error"),
    ],
)
def test_a_simulators_failure_is_not_the_agents(row: dict[str, Any]) -> None:
    found = rollout(row)
    assert found.failure is not None
    assert found.failure["stage"] == "environment"
    assert (found.score, found.stop_reason) == (None, None)


@pytest.mark.parametrize(
    ("row", "stop"),
    [
        (first({"reward_info": {"reward": 0.0}}, STOPPED), "done"),
        (first({"reward_info": None}), "step_limit"),
        (first({}, STOPPED), "done"),
        (first({}, HANDED_OVER), "done"),
        (first({}), None),
        (second("user_stop"), "done"),
        (second("agent_stop"), "done"),
        (second("agent_error"), "done"),
        (second("too_many_errors"), "done"),
        (second("max_steps"), "step_limit"),
        (second("timeout"), "step_limit"),
        (second("context_window_exceeded"), "context_length"),
        (second("moonrise"), "incomplete"),
    ],
)
def test_stop_reasons_are_read_and_the_agents_own_end_keeps_its_score(row: dict[str, Any], stop: str | None) -> None:
    found = rollout(row)
    assert (found.failure, found.score, found.stop_reason) == (None, 0.0, stop)
    assert found.truncated is (stop not in (None, "done"))
