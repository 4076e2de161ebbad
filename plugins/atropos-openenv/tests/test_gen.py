"""Episodes of a server that speaks OpenEnv's protocol through `gen`: actions, observations, sessions, failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gen = Callable[..., list[dict[str, Any]]]
Serve = Callable[..., tuple[str, Any]]


def contents(rollout: dict[str, Any]) -> list[str]:
    return [message["content"] for message in rollout["messages"]]


def test_json_actions_are_read_refused_and_counted(gen: Gen, serve: Serve) -> None:
    name, _ = serve("json")
    replies = ["Let me think.", '{"value": "seven"}', 'First {"value": 3}, no: {"value": 7}']
    (group,) = gen(name, replies, "--data-seed", 7, "--limit", 1, "--group-size", 1)
    (rollout,) = group["rollouts"]
    assert [message["role"] for message in rollout["messages"]] == ["user", "assistant"] * 3
    assert contents(rollout)[0].endswith("the number is 7")
    assert '"required": ["value"]' in contents(rollout)[0]
    assert contents(rollout)[2] == "error: there is no JSON object in the reply"
    assert contents(rollout)[4].startswith("error: VALIDATION_ERROR: Invalid message")
    assert (rollout["reward"], rollout["stop_reason"]) == (1.0, "done")
    assert rollout["metrics"] == {
        "steps": 3.0,
        "refused_actions": 2.0,
        "rewarded_steps": 1.0,
        "last_reward": 1.0,
    }
    assert rollout["info"]["step_rewards"] == [1.0]
    assert sum("tokens" in message for message in rollout["messages"]) >= 3


def test_an_action_that_is_one_text_is_the_reply(gen: Gen, serve: Serve) -> None:
    name, _ = serve("text")
    groups = gen(
        name, ["<think>the seed?</think> 3"], "--data-seed", 3, "--limit", 2, "--group-size", 2, "--max-steps", 2
    )
    assert [contents(group["rollouts"][0])[0] for group in groups] == ["the number is 3", "the number is 4"]
    assert [group["rollouts"][0]["reward"] for group in groups] == [1.0, 0.0]
    assert groups[1]["rollouts"][0]["stop_reason"] == "step_limit"


def test_a_servers_tools_are_the_models(gen: Gen, serve: Serve) -> None:
    name, _ = serve("tools")
    call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 5}}</tool_call>'
    (group,) = gen(name, [call, "seven"], "--limit", 1, "--group-size", 1)
    (rollout,) = group["rollouts"]
    assert [message["role"] for message in rollout["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert contents(rollout)[2] == "7"
    assert (rollout["reward"], rollout["stop_reason"]) == (0.5, "done")


def test_an_action_can_be_a_tool(gen: Gen, serve: Serve) -> None:
    name, _ = serve("json")
    calls = [f'<tool_call>{{"name": "{tool}", "arguments": {{"value": 5}}}}</tool_call>' for tool in ("guess", "act")]
    (group,) = gen(name, calls, "--actions", "tools", "--data-seed", 5, "--limit", 1, "--group-size", 1)
    (rollout,) = group["rollouts"]
    assert "there is no tool 'guess'" in contents(rollout)[2]
    assert rollout["reward"] == 1.0


def test_sessions_are_no_more_than_the_server_has(gen: Gen, serve: Serve) -> None:
    name, server = serve("text", sessions=2, delay_s=0.05)
    groups = gen(name, ["0"], "--limit", 4, "--group-size", 3, "--max-steps", 1, "--workers", 12)
    assert [rollout.get("failure") for group in groups for rollout in group["rollouts"]] == [None] * 12
    assert server.most == 2
    assert server.refused > 0
    assert server.open == 0


def test_waiting_for_a_session_ends(gen: Gen, serve: Serve, tmp_path: Path) -> None:
    name, _ = serve("text", sessions=0)
    gen(name, ["0"], "--limit", 1, "--group-size", 1, "--capacity-s", 0.2, code=1)
    failure = json.loads((tmp_path / "run" / "failures.jsonl").read_text())
    assert "CAPACITY_REACHED" in failure["message"]


def test_a_server_that_restarts_is_waited_for(gen: Gen, serve: Serve) -> None:
    name, server = serve("text")
    server.away = 3
    (group,) = gen(name, ["0"], "--limit", 1, "--group-size", 2, "--max-steps", 1)
    assert [rollout.get("failure") for rollout in group["rollouts"]] == [None, None]
    assert server.away == 0


def test_a_server_that_stays_away_is_not_waited_for_longer(gen: Gen, serve: Serve, tmp_path: Path) -> None:
    name, server = serve("text")
    server.away = 1000
    gen(name, ["0"], "--limit", 1, "--group-size", 1, "--restart-s", 0.2, code=1)
    failure = json.loads((tmp_path / "run" / "failures.jsonl").read_text())
    assert failure["message"].startswith("cannot connect to http://127.0.0.1:")


def test_few_more_sessions_are_asked_for_than_the_server_has(gen: Gen, serve: Serve) -> None:
    name, server = serve("text", sessions=2)
    gen(name, ["0"], "--limit", 10, "--group-size", 4, "--max-steps", 1, "--workers", 40)
    assert server.resets == 40
    assert server.refused <= 60  # those that came at once, and now and then one


def test_a_lost_connection_fails_its_rollout_alone(gen: Gen, serve: Serve, tmp_path: Path) -> None:
    name, _ = serve("text")
    options = ("--limit", 1, "--group-size", 3, "--max-steps", 1, "--max-failure-rate", 1)
    (group,) = gen(name, ["die", "0", "fail"], *options)
    failures = [rollout.get("failure") for rollout in group["rollouts"]]
    assert [failure and failure["stage"] for failure in failures] == ["environment", None, "environment"]
    assert "closed the connection" in failures[0]["message"]
    assert "EXECUTION_ERROR: the action failed" in failures[2]["message"]


NAN = float("nan")


@pytest.mark.parametrize("reward", [NAN, "1.0", [1.0], 10**400], ids=range(4))
def test_a_reward_that_is_no_number_is_never_left_out(gen: Gen, serve: Serve, tmp_path: Path, reward: Any) -> None:
    name, server = serve("text")
    server.alter = lambda said: [with_data(said, reward=reward)]
    gen(name, ["0"], "--limit", 1, "--group-size", 2, code=1)
    assert "a reward that is not a finite number" in failure_of(tmp_path)


@pytest.mark.parametrize(("reward", "given"), [(None, 0.0), (True, 1.0), (-2, -2.0)])
def test_a_reward_may_be_missing_or_whole(gen: Gen, serve: Serve, reward: Any, given: float) -> None:
    name, server = serve("text")
    server.alter = lambda said: [with_data(said, reward=reward)]
    (group,) = gen(name, ["0"], "--limit", 1, "--group-size", 1)
    assert group["rollouts"][0]["reward"] == given


@pytest.mark.parametrize("done", ["false", [0], NAN])
def test_an_end_that_is_neither_true_nor_false_is_an_error(gen: Gen, serve: Serve, tmp_path: Path, done: Any) -> None:
    name, server = serve("text")
    server.alter = lambda said: [with_data(said, done=done)]
    gen(name, ["0"], "--limit", 1, "--group-size", 1, code=1)
    assert "neither true nor false" in failure_of(tmp_path)


def test_an_episode_that_is_over_at_its_reset_is_not_played(gen: Gen, serve: Serve, tmp_path: Path) -> None:
    name, server = serve("text")
    server.alter = lambda said: [with_data(said, done=True)]
    gen(name, ["0"], "--limit", 1, "--group-size", 1, code=1)
    assert "over at its reset" in failure_of(tmp_path)


def test_an_answer_too_many_is_not_taken_for_the_next_one(gen: Gen, serve: Serve, tmp_path: Path) -> None:
    name, server = serve("text")
    server.alter = lambda said: [said, with_data(said, reward=100.0)]
    gen(name, ["1"], "--limit", 1, "--group-size", 1, "--data-seed", 1, "--max-steps", 3, code=1)
    assert "a message that answers nothing" in failure_of(tmp_path)


@pytest.mark.parametrize("tools", [[], "add", [{"name": 5}], [{"name": "add", "input_schema": "a and b"}]])
def test_a_server_without_tools_that_can_be_called_fails_its_rollouts(
    gen: Gen, serve: Serve, tmp_path: Path, tools: Any
) -> None:
    name, server = serve("tools")
    server.alter = lambda said: [with_data(said, result={"tools": tools}) if said["type"] == "mcp" else said]
    gen(name, ["seven"], "--limit", 1, "--group-size", 1, code=1)
    assert "tool" in failure_of(tmp_path)


@pytest.mark.parametrize(
    "described",
    [
        None,
        "<html></html>",
        "[" * 100_000,
        '{"action": "' + "x" * (17 << 20) + '"}',
        {"action": "text"},
        {"action": {"properties": ["answer"]}},
        {"action": {"properties": {"answer": "string"}, "required": ["answer"]}},
        {"action": {"properties": {"answer": {"type": "string"}}, "required": 1}},
        {"action": {"properties": {"answer": {"type": "string"}}, "required": [["answer"]]}},
    ],
    ids=range(9),
)
def test_a_server_that_describes_nothing_of_use_is_refused(
    cli: Callable[..., Any], serve: Serve, described: Any
) -> None:
    name, server = serve("text")
    server.described = described
    ended = cli("gen", name, "--backend", "scripted", "--backend.replies", "x")
    assert (ended.code, "its /schema" in ended.stderr) == (3, True), ended.stderr


def with_data(said: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**said, "data": {**said["data"], **changed}}


def failure_of(folder: Path) -> str:
    message: str = json.loads((folder / "run" / "failures.jsonl").read_text().splitlines()[0])["message"]
    return message


def test_an_address_without_a_server_and_one_that_is_none(cli: Callable[..., Any], serve: Serve) -> None:
    none = cli("gen", "openenv:http://127.0.0.1:9", "--backend", "scripted", "--backend.replies", "x")
    assert (none.code, "no OpenEnv server at http://127.0.0.1:9" in none.stderr) == (3, True)
    odd = cli("gen", "openenv:somewhere", "--backend", "scripted", "--backend.replies", "x")
    assert (odd.code, "openenv:http://HOST:PORT" in odd.stderr) == (2, True)
    for wrong in ("http://[::1", "http://host:port", "http://host:99999", "http://", "//host"):
        refused = cli("gen", f"openenv:{wrong}", "--backend", "scripted", "--backend.replies", "x")
        assert (refused.code, "is not the address of a server" in refused.stderr) == (2, True), refused.stderr
    alone = cli("gen", "openenv", "--backend", "scripted", "--backend.replies", "x")
    assert (alone.code, "openenv:http://HOST:PORT" in alone.stderr) == (3, True)
    name, _ = serve("tools")
    wrong = cli("gen", name, "--actions", "json", "--backend", "scripted", "--backend.replies", "x")
    assert (wrong.code, "calls of its tools" in wrong.stderr) == (3, True)
    assert "needs no Python" in cli("env", "add", "openenv", "--python", "python3").stderr
