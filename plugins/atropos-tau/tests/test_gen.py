"""`tau` from the command line, with tau2 behind it: ground truth, doing nothing, users, limits, judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BOTH = """
TASK = '{"user_id": "user_1", "title": "Important Meeting"}'
CALL = '<tool_call>{"name": "create_task", "arguments": ' + TASK + '}</tool_call>'

def say(messages, request):
    if not request.tools:
        return "Please create a task." if len(messages) < 3 else "Thanks. ###STOP###"
    return "It is created." if messages[-1].role == "tool" else CALL
"""
HALF = r"""
from atropos_cli.sdk import FunctionCall, Message, ToolCall

ODD = FunctionCall(name="create_task", arguments='{"user_id": "\ud83d", "\ud83d": 1}')

def say(messages, request):
    if any(message.role == "tool" for message in messages):
        return "It is done."
    return Message(role="assistant", content=None, tool_calls=(ToolCall(id="c", function=ODD),))
"""
Gen = Callable[..., list[dict[str, Any]]]
Cli = Callable[..., Any]


def rewards(groups: list[dict[str, Any]]) -> dict[str, float]:
    return {group["task"]["id"]: rollout["reward"] for group in groups for rollout in group["rollouts"]}


def only(groups: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(groups) == 1
    rollout: dict[str, Any] = groups[0]["rollouts"][0]
    return rollout


def test_mock_ground_truth_earns_1_and_doing_nothing_0(gen: Gen) -> None:
    right = rewards(gen("right", "gold", "--env.user", "scripted"))
    assert len(right) == 9
    assert set(right.values()) == {1.0}
    wrong = rewards(gen("wrong", "nothing", "--env.user", "scripted"))
    # tau2 asks nothing of the state here, and of the words only a judge.
    assert wrong.pop("create_task_1_nl_eval") == 1.0
    assert set(wrong.values()) == {0.0}


def test_telecom_with_a_user_who_acts_and_alone(gen: Gen) -> None:
    few: tuple[Any, ...] = ("--env.domain", "telecom", "--limit", 3)
    talk: tuple[Any, ...] = (*few, "--env.user", "scripted")
    groups = gen("user", "gold", *talk, split="small")
    assert set(rewards(groups).values()) == {1.0}
    assert any(group["rollouts"][0]["info"]["user_calls"] for group in groups)
    assert set(rewards(gen("alone", "gold", *few, "--env.solo", split="small")).values()) == {1.0}
    assert set(rewards(gen("nothing", "nothing", *few, "--env.solo", split="small")).values()) == {0.0}
    assert set(rewards(gen("idle", "nothing", *talk, split="small")).values()) == {0.0}


@pytest.mark.slow
def test_airline_and_retail_share_their_tables(gen: Gen) -> None:
    for domain in ("airline", "retail"):
        few = ("--env.domain", domain, "--env.user", "scripted", "--limit", 12)
        assert set(rewards(gen(f"{domain}-right", "gold", *few)).values()) == {1.0}
        # In the same process, after others changed their copies.
        groups = gen(f"{domain}-wrong", "nothing", *few)
        for group in groups:
            checks = group["rollouts"][0]["info"]["checks"]
            writes = not checks["db"][0]
            assert group["rollouts"][0]["reward"] == float(not writes and all(checks["communicate"]))


def test_parts_ends_and_limits_are_told(gen: Gen, tmp_path: Path) -> None:
    one = ("--env.task-ids", "update_task_1", "--env.user", "scripted")
    rollout = only(gen("right", "gold", *one))
    assert rollout["info"]["termination"] == "user_stop"
    assert rollout["info"]["success"] is True
    assert rollout["rewards"] == {
        "tau_reward": 1.0, "tau_db": 1.0, "tau_env_assertions": 1.0, "tau_actions": 1.0, "tau_communicate": 1.0,
    }  # fmt: skip
    assert rollout["metrics"]["tau_actions"] == 1.0
    assert "tau_communicate" not in rollout["metrics"]
    rollout = only(gen("short", "gold", *one, "--env.max-turns", 1))
    assert (rollout["info"]["termination"], rollout["stop_reason"]) == ("max_turns", "step_limit")
    assert (rollout["reward"], rollout["rewards"]["tau_db"]) == (0.0, 1.0)
    Path("wrong.py").write_text(
        "def say(messages, request):\n"
        '    return \'<tool_call>{"name": "update_task_status", "arguments": {"task_id": "no"}}</tool_call>\'\n'
    )
    rollout = only(gen("errors", "./wrong.py:say", *one, "--env.max-errors", 3))
    assert (rollout["info"]["termination"], rollout["metrics"]["tool_errors"]) == ("too_many_errors", 3.0)


def test_the_last_turn_that_is_allowed_ends_a_conversation_as_any_other(gen: Gen) -> None:
    for folder, more, end in (
        ("talk", ("--env.task-ids", "create_task_1", "--env.user", "scripted"), "user_stop"),
        ("solo", ("--env.domain", "mock", "--env.solo", "--limit", 1), "agent_stop"),
    ):
        turns = int(only(gen(folder, "gold", *more))["metrics"]["turns"])
        last = only(gen(f"{folder}-last", "gold", *more, "--env.max-turns", turns))
        assert (last["info"]["termination"], last["stop_reason"], last["reward"]) == (end, "done", 1.0)
        cut = only(gen(f"{folder}-cut", "gold", *more, "--env.max-turns", turns - 1))
        assert (cut["info"]["termination"], cut["stop_reason"], cut["reward"]) == ("max_turns", "step_limit", 0.0)


def test_half_a_character_in_a_call_is_an_error_of_the_call(gen: Gen) -> None:
    Path("half.py").write_text(HALF)
    rollout = only(gen("half", "./half.py:say", "--env.task-ids", "create_task_1", "--env.user", "scripted"))
    assert (rollout.get("failure"), rollout["info"]["termination"]) == (None, "user_stop")
    results = [message["content"] for message in rollout["messages"] if message["role"] == "tool"]
    assert len(results) == 1
    assert results[0].startswith("Error: ")


def test_a_lost_process_takes_no_episode_with_it(tau: Path) -> None:
    """A state is made again by playing its calls."""
    import asyncio

    from atropos_tau.bench import Bench

    async def play() -> tuple[Any, Any]:
        bench = Bench("mock", solo=False, tool_timeout=10)
        await bench.open()
        try:
            state = bench.state("update_task_1")
            await state.call("assistant", "create_task", {"user_id": "user_1", "title": "x"})
            await bench.close()
            made = await state.call("assistant", "create_task", {"user_id": "user_1", "title": "y"})
            await state.call("assistant", "update_task_status", {"task_id": "task_1", "status": "completed"})
            return made, await state.evaluate()
        finally:
            await bench.close()

    made, found = asyncio.run(play())
    assert json.loads(made.text)["task_id"] == "task_3"
    assert found == {"db": False, "env_assertions": [], "actions": [True]}


def test_odd_calls_are_answered_and_harm_no_other_episode(tau: Path) -> None:
    import asyncio

    from atropos_tau.bench import Bench

    odd: list[tuple[str, str, Any]] = [
        ("assistant", "no_such_tool", {}),
        ("assistant", "__class__", {}),
        ("assistant", "use_tool", {"tool_name": "get_users"}),
        ("assistant", "get_user_details", {"tool_name": "x", "requestor": "user"}),
        ("assistant", "get_user_details", {"user_id": ["a"]}),
        ("assistant", "get_user_details", {"user_id": {"a": [None]}, "self": 1}),
        ("user", "get_user_details", {"user_id": "a"}),
        ("assistant", "calculate", {"expression": "9**9**9**9"}),
        ("assistant", "calculate", {"expression": "().__class__"}),
        ("assistant", "cancel_pending_order", {"order_id": 7, "reason": 1}),
    ]

    async def play() -> tuple[list[Any], Any]:
        bench = Bench("retail", solo=False, tool_timeout=1)
        await bench.open()
        try:
            state = bench.state("0")
            records = [await state.call(*call) for call in odd]
            quiet = bench.state("0")
            await quiet.call("assistant", "list_all_product_types", {})
            return records, (await state.evaluate(), await quiet.evaluate())
        finally:
            await bench.close()

    records, found = asyncio.run(play())
    assert all(record.failed and record.text.startswith("Error") for record in records)
    assert "longer than 1 s" in records[7].text
    assert found[0] == found[1]


def test_the_judge_is_a_role_and_its_nonsense_costs_no_episode(gen: Gen, tmp_path: Path) -> None:
    Path("judge.py").write_text(
        "def fair(messages, request):\n"
        "    assert 'The user is complimented' in messages[-1].text\n"
        '    return \'{"results": [{"reason": "a", "met": true}, {"reason": "b", "met": false}]}\'\n'
        "def mad(messages, request):\n"
        "    return 'I like it.'\n"
    )
    asks: tuple[str, ...] = ("--env.task-ids", "create_task_1_nl_eval", "--env.user", "scripted")
    asks += ("--env.nl-assertions",)
    asks += ("--reward", "tau_reward", "--reward", "tau_nl_assertions=0.5", "--role.judge.backend", "scripted")
    Path("atropos.toml").write_text('[role.judge.backend_options]\nfunction = "./judge.py:fair"\n')
    rollout = only(gen("fair", "gold", *asks))
    assert rollout["info"]["checks"]["nl_assertions"] == [True, False]
    assert rollout["reward"] == 1.0 + 0.5 * 0.5
    Path("atropos.toml").write_text('[role.judge.backend_options]\nfunction = "./judge.py:mad"\n')
    rollout = only(gen("mad", "gold", *asks))
    assert (rollout["info"]["judge"], rollout["metrics"]["judge_unreadable"]) == ("unreadable", 2.0)
    assert (rollout["reward"], rollout["rewards"]["tau_nl_assertions"]) == (1.0, 0.0)


def test_the_policy_plays_the_user_and_rows_train_on_the_agent_alone(gen: Gen, cli: Cli, tmp_path: Path) -> None:
    Path("both.py").write_text(BOTH)
    rollout = only(gen("both", "./both.py:say", "--env.task-ids", "create_task_1", "--backend.token-ids"))
    assert rollout["reward"] == 1.0
    assert [m["role"] for m in rollout["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert rollout["info"]["last_user_message"] == "Thanks. ###STOP###"
    rows = tmp_path / "rows.jsonl"
    ended = cli("sft-gen", tmp_path / "both", "--format", "tokens", "-o", rows)
    assert ended.code == 0, ended.stderr
    row = json.loads(rows.read_text())
    learnt = bytes(i for i, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100 and i < 256)
    assert b"create_task" in learnt
    assert b"It is created." in learnt
    assert b"pending" not in learnt
    assert b"Please" not in learnt


def test_a_user_that_says_nothing_is_an_end_of_its_own(gen: Gen) -> None:
    Path("mute.py").write_text("def say(messages, request):\n    return 'hello' if request.tools else ''\n")
    rollout = only(gen("mute", "./mute.py:say", "--env.task-ids", "create_task_1"))
    assert (rollout["info"]["termination"], rollout["info"]["user_fault"]) == ("user_error", "empty_user_message")
    assert (rollout["reward"], rollout["metrics"]["user_errors"]) == (0.0, 1.0)


def test_wrong_choices_are_refused_with_a_hint(tau: Path, cli: Cli) -> None:
    for words, hint in (
        (("--env.domain", "retail", "--env.solo"), "mock and telecom"),
        (("--env.task-ids", "nowhere"), "create_task_1"),
    ):
        ended = cli("gen", "tau", *words, "--backend", "scripted", "--backend.replies", "x", "-o", "run")
        assert ended.code != 0
        assert hint in ended.stderr
    ended = cli("gen", "tau:mock", "--backend", "scripted", "--backend.replies", "x", "-o", "run")
    assert "--env.domain mock" in ended.stderr


def test_gold_answers_are_checked_without_a_model(tau: Path, cli: Cli) -> None:
    ended = cli("env", "check", "tau", "--split", "base", "--limit", 9)
    assert ended.code == 0, ended.stderr
    assert "gold answers: 7 ok, 0 failed, 2 not checked" in ended.stdout + ended.stderr
