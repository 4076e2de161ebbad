"""Episodes with a resource server: its session, its tools, its verify, and what becomes of failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_nemo_gym.environment import family
from counter_server import CounterServer
from nemo_gym_support import call, row

from atropos_cli.sdk import ConfigError

Gen = Callable[..., list[dict[str, Any]]]


def test_an_episode_has_a_session_of_its_own_and_is_verified(gen: Gen, server: tuple[str, CounterServer]) -> None:
    replies = [call("add", count=2), call("get"), "It is done."]
    groups = gen([row(1, 3), row(5, 7), row(5, 9)], replies)
    rollouts = [group["rollouts"][0] for group in groups]
    assert [rollout["rewards"] for rollout in rollouts] == [{"nemo_gym_reward": value} for value in (1.0, 1.0, 0.0)]
    assert rollouts[2]["metrics"] == {
        "off_by": 2.0, "exact": 0.0, "turns": 3.0, "tool_calls": 2.0, "refused_calls": 0.0
    }  # fmt: skip
    assert rollouts[2]["info"] == {
        "verified_reward": 0.0,
        "verified": {"off_by": 2, "exact": False, "why": "the count"},
    }
    assert [m["content"] for m in rollouts[0]["messages"] if m["role"] == "tool"] == [
        '{"success": true}',
        '{"count": 3}',
    ]
    response = server[1].verified[0]["response"]
    kinds = [item["type"] for item in response["output"] if item["type"] != "message"]
    assert kinds == ["function_call", "function_call_output", "function_call", "function_call_output"]
    assert response["output"][-1]["content"][0]["text"] == "It is done."
    made, seen = [item for item in response["output"] if item["type"].startswith("function_call")][:2]
    assert (made["name"], json.loads(made["arguments"])) == ("add", {"count": 2})
    assert made["call_id"] == seen["call_id"]


def test_a_reply_is_trained_on_and_the_answers_of_tools_are_not(gen: Gen) -> None:
    rollout = gen([row(1, 3)], [call("add", count=2), "Done."])[0]["rollouts"][0]
    trained = []
    for span in (message["tokens"] for message in rollout["messages"] if message.get("tokens")):
        mask = span["mask"] if isinstance(span["mask"], list) else [span["mask"]] * len(span["ids"])
        trained.append(bytes(i for i, used in zip(span["ids"], mask, strict=True) if used and i < 256).decode())
    assert [text for text in trained if text] == [call("add", count=2), "Done."]


def test_what_a_tool_refuses_is_for_the_model_to_read(gen: Gen) -> None:
    replies = [call("add", count="two"), call("verify"), "I give up."]
    rollout = gen([row(1, 3)], replies)[0]["rollouts"][0]
    answers = [message["content"] for message in rollout["messages"] if message["role"] in ("tool", "user")][1:]
    assert json.loads(answers[0]) == {"detail": "count is no integer"}
    assert "verify" in answers[1]
    assert rollout["reward"] == 0.0
    assert rollout["metrics"]["refused_calls"] == 2.0


def test_no_request_meets_a_connection_that_the_server_gave_up(gen: Gen, server: tuple[str, CounterServer]) -> None:
    rollout = gen([row(1, 3)], [call("add", count="two"), call("add", count=2), "Done."])[0]["rollouts"][0]
    assert (rollout["reward"], rollout["metrics"]["refused_calls"]) == (1.0, 1.0)
    ports = server[1].ports
    assert len(ports) == len(set(ports)) > 2


def test_a_reward_in_the_row_is_not_that_of_the_episode(gen: Gen) -> None:
    rollout = gen([{**row(1, 3), "reward": 0.25}], [call("add", count=2), "Done."])[0]["rollouts"][0]
    assert rollout["reward"] == 1.0


def test_the_last_turn_that_is_allowed_is_verified(gen: Gen, server: tuple[str, CounterServer]) -> None:
    rollout = gen([row(1, 5)], [call("add", count=2)], "--max-turns", 2)[0]["rollouts"][0]
    assert (rollout["reward"], rollout["stop_reason"]) == (1.0, "step_limit")
    assert server[1].verified[0]["response"]["status"] == "incomplete"


def test_a_verify_that_fails_or_hangs_fails_its_rollout_and_is_done_again(
    gen: Gen, server: tuple[str, CounterServer], tmp_path: Path
) -> None:
    rows = [row(1, 3), row(2, 4), row(3, 5)]
    server[1].fail_verify = 1
    groups = gen(rows, [call("add", count=2), "Done."], "--max-failure-rate", 1)
    assert len(groups) == 2
    failure = json.loads((tmp_path / "run" / "failures.jsonl").read_text().splitlines()[0])
    assert (failure["type"], "answered 500" in failure["message"]) == ("NemoGymError", True)
    server[1].hang = True
    gen([row(1, 3)], ["Done."], "--timeout-s", 0.5, code=1, folder="hung")
    assert "did not answer /verify within 0.5 s" in (tmp_path / "hung" / "failures.jsonl").read_text()


def test_a_resumed_run_plays_the_rows_that_are_missing(gen: Gen, server: tuple[str, CounterServer]) -> None:
    rows = [row(n, n + 2) for n in range(4)]
    replies = [call("add", count=2), "Done."]
    gen(rows, replies, "--limit", 2)
    groups = gen(rows, replies, "--limit", 4, "--resume")
    assert [group["task"]["info"]["row"] for group in groups] == [0, 1, 2, 3]
    assert len(server[1].verified) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "row 1 of"),
        ('{"responses_create_params": {"tools": []}}', "makes the prompt itself"),
        ("[]", "not a task"),
        (f'{{"responses_create_params": {{"input": "x"}}, "deep": {"[" * 20_000}', "not a task"),
        ('{"responses_create_params": {"input": [{"type": "function_call"}]}}', "an item of the input cannot be read"),
        ('{"responses_create_params": {"input": [{"role": "user", "content": 5}]}}', "an item of the input"),
    ],
    ids=range(6),
)
def test_a_row_that_is_no_task_is_named(
    cli: Callable[..., Any], server: tuple[str, CounterServer], tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "odd.jsonl").write_text(text + "\n")
    ended = cli(
        "gen", server[0], "--env.data", tmp_path / "odd.jsonl", "--backend", "scripted", "--backend.replies", "x"
    )
    assert ended.code != 0
    assert said in ended.stderr


@pytest.mark.parametrize("tools", [5, ["add"], [{}], [{"name": 5}]])
def test_tools_that_are_none_fail_their_row(gen: Gen, tmp_path: Path, tools: Any) -> None:
    wrong = row(1, 3)
    wrong["responses_create_params"]["tools"] = tools
    gen([wrong], ["x"], code=1)
    failure = json.loads((tmp_path / "run" / "failures.jsonl").read_text())
    assert failure["type"] == "DataError"


@pytest.mark.parametrize("described", ["[]", '{"paths": 5}', "[" * 100_000, "<html>", '{"paths": {}}'], ids=range(5))
def test_a_server_of_another_kind_is_named(
    cli: Callable[..., Any], server: tuple[str, CounterServer], tmp_path: Path, described: str
) -> None:
    server[1].described = described
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row(1, 2)) + "\n")
    backend = ("--backend", "scripted", "--backend.replies", "x")
    ended = cli("gen", server[0], "--env.data", tmp_path / "tasks.jsonl", *backend)
    assert (ended.code, "no resource server of NeMo Gym" in ended.stderr) == (3, True), ended.stderr
    assert "object is not iterable" not in ended.stderr


def test_a_dead_server_and_missing_tasks_are_named(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row(1, 2)) + "\n")
    dead = "nemo-gym:http://127.0.0.1:9"
    backend = ("--backend", "scripted", "--backend.replies", "x")
    ended = cli("gen", dead, "--env.data", tmp_path / "tasks.jsonl", *backend)
    assert (ended.code, "no resource server of NeMo Gym at http://127.0.0.1:9" in ended.stderr) == (3, True)
    ended = cli("gen", dead, *backend)
    assert (ended.code, "--env.data FILE.jsonl" in ended.stderr) == (3, True)
    ended = cli("gen", dead, "--env.data", tmp_path / "none.jsonl", *backend)
    assert (ended.code, "cannot read" in ended.stderr) == (3, True)
    assert cli("gen", "nemo-gym:example_multi_step", *backend).code == 2


def test_a_server_needs_no_python_of_its_own(cli: Callable[..., Any]) -> None:
    ended = cli("env", "add", "nemo-gym")
    assert (ended.code, "needs no Python of its own" in ended.stderr) == (2, True)


def test_tasks_are_known_before_the_server_is_asked(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row(n, n + 1)) + "\n" for n in range(3)))
    cls = family("http://127.0.0.1:1")
    environment = cls(cls.Config.model_validate({"data": tmp_path / "rows.jsonl"}))
    assert [task.id for task in environment.tasks("train")] == ["row-000000", "row-000001", "row-000002"]
    with pytest.raises(ConfigError, match="cannot read"):
        cls(cls.Config.model_validate({"data": tmp_path / "none.jsonl"})).tasks("train")
