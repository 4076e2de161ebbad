"""`gen` against servers that misbehave: the public bug reports of the case table, one test each.

The mock server plays the row's own script where it has one; the expectation is the row's text. Rows that concern
reading files are tested with the readers, rows about plugins and configuration with those.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer
from case_tables import field_case as row

ATROPOS = Path(sys.executable).with_name("atropos")

ENVIRONMENT = '''
import itertools
import json
from pathlib import Path
from atropos_cli.sdk import Config, Environment, Episode, Task, reward, user

@reward
def answered(task, rollout) -> float:
    """1.0 when the content holds the task's answer (42 if it has none)."""
    return float((task.answer or "42") in rollout.text)

class Options(Config):
    count: int = 0
    turns: int = 1

class Turns(Episode):
    def __init__(self, task, turns):
        self.task, self.left = task, turns
    def reset(self):
        return list(self.task.prompt)
    def step(self, reply):
        self.left -= 1
        return None if not self.left else [user("next")]

class Prompts(Environment):
    """prompts.jsonl beside this file, or `count` numbered prompts."""
    name = "prompts"
    Config = Options
    rewards = (answered,)
    def tasks(self, split):
        file = Path(__file__).with_name("prompts.jsonl")
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        rows = rows or [{"id": f"p{i}", "prompt": f"x{i}"} for i in range(self.config.count or 1)]
        return [Task(id=row["id"], prompt=(user(row["prompt"]),)) for row in rows]
    def episode(self, task):
        return Turns(task, self.config.turns)
'''


@dataclass
class Gen:
    """Runs `atropos gen` in a folder of its own against a mock server."""

    folder: Path
    server: MockServer

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def command(self, *options: str) -> list[str]:
        return [
            *(str(ATROPOS), "gen", f"{self.folder}/prompts.py:Prompts", "--base-url", self.server.base_url),
            *("--model", "mock-model", "-o", str(self.run), *options),
            *(() if "--group-size" in options else ("--group-size", "1")),
        ]

    def __call__(self, *options: str, timeout: float = 60, **popen: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*options), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **popen
        )

    def groups(self) -> list[dict[str, Any]]:
        path = self.run / "groups.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def failures(self) -> list[dict[str, Any]]:
        path = self.run / "failures.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    @property
    def sent(self) -> int:
        return len(self.server.generations)


@pytest.fixture
def gen_for(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Gen]:
    """A Gen for a row of the table, or for a given script."""

    def make(identifier: str | None = None, script: Any = None, **options: Any) -> Gen:
        if identifier is not None:
            case = row(identifier)["input"]
            script = case.get("mock_server", script)
            for name, text in case.get("files", {}).items():
                (tmp_path / name).write_text(text)
        (tmp_path / "prompts.py").write_text(ENVIRONMENT)
        server = MockServer(script or (), **options).start()
        request.addfinalizer(server.stop)
        return Gen(tmp_path, server)

    return make


GenFor = Callable[..., Gen]


def test_A19_two_writers(gen_for: GenFor) -> None:
    gen = gen_for(reply="y" * 300_000, delay=0.1)
    first = subprocess.Popen(gen.command("--count", "30", "--workers", "1"), stderr=subprocess.PIPE)
    while not (gen.run / "groups.jsonl").exists():
        time.sleep(0.02)
    second = gen("--count", "30", "--resume")
    assert second.returncode == 6
    assert f"pid {first.pid}" in second.stderr
    assert str(gen.run) in second.stderr
    assert first.wait(30) == 0
    first.communicate()
    assert len(gen.groups()) == 30


def test_A21_the_same_command_again(gen_for: GenFor) -> None:
    gen = gen_for("A21")
    assert gen().returncode == 0
    assert gen.sent == 3
    again = gen()
    assert again.returncode == 6
    assert "already holds a run" in again.stderr
    assert "--resume" in again.stderr
    resumed = gen("--resume", "--json")
    assert resumed.returncode == 0
    assert json.loads(resumed.stdout)["groups_resumed"] == 3
    assert gen.sent == 3
    before = (gen.run / "groups.jsonl").read_bytes()
    gen.server.handler = lambda request: {"status": 400, "json": {"error": {"message": "no"}}}
    assert gen("--overwrite").returncode != 0
    assert (gen.run / "groups.jsonl").read_bytes() == before
    gen.server.handler = lambda request: {"reply": "other"}
    assert gen("--overwrite").returncode == 0
    assert {g["rollouts"][0]["messages"][-1]["content"] for g in gen.groups()} == {"other"}


def test_A22_killed_in_the_middle_of_groups_of_four(gen_for: GenFor) -> None:
    gen = gen_for(delay=0.05)
    options = ("--count", "20", "--group-size", "4", "--workers", "2")
    child = subprocess.Popen(gen.command(*options), stderr=subprocess.DEVNULL)
    while not (gen.run / "groups.jsonl").exists() or (gen.run / "groups.jsonl").read_bytes().count(b"\n") < 10:
        time.sleep(0.01)
    child.kill()
    child.wait()
    done = len(gen.groups())
    sent = gen.sent
    assert gen(*options, "--resume").returncode == 0
    assert sorted(g["task"]["id"] for g in gen.groups()) == sorted(f"p{i}" for i in range(20))
    assert all(len(g["rollouts"]) == 4 for g in gen.groups())
    # Finished groups are not paid for twice: only the ones that were under way are.
    assert gen.sent - sent == 20 - done


def test_A24_the_disk_fills_up(gen_for: GenFor) -> None:
    gen = gen_for(reply="z" * 100_000)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    options = ("--count", "40", "--workers", "1")
    full = gen(*options, preexec_fn=limit)
    assert full.returncode == 6
    assert "no space left" in full.stderr
    assert "9 records" in full.stderr
    assert len(gen.groups()) == 9
    assert gen.sent in (10, 11)  # the next group may have asked while the last one was scored
    assert gen(*options, "--resume").returncode == 0
    assert len(gen.groups()) == 40


def test_A30_one_request_fails_for_good(gen_for: GenFor) -> None:
    gen = gen_for("A30")
    partly = gen("--workers", "1")
    assert partly.returncode == 1
    assert len(gen.groups()) == 29
    (failed,) = gen.failures()
    assert "invalid character in prompt" in failed["message"]
    sent = gen.sent
    assert sent == 30
    assert gen("--workers", "1", "--resume").returncode == 0
    assert gen.sent == sent + 1
    assert len(gen.groups()) == 30


def test_B01_rate_limited_with_retry_after(gen_for: GenFor) -> None:
    gen = gen_for("B01")
    done = gen("--workers", "8", "--retries", "0")
    assert done.returncode == 0, done.stderr
    assert len(gen.groups()) == 8
    assert gen.sent == 8 + 5
    assert done.stderr.count("rate limited") == 1
    times = [request.time for request in gen.server.generations]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert max(pauses) >= 1.9
    good_prompts = [request.json["messages"][0]["content"] for request in gen.server.generations[5:]]
    assert len(set(good_prompts)) == 8


def test_B03_paused_while_weights_load(gen_for: GenFor) -> None:
    gen = gen_for("B03")
    done = gen()
    assert done.returncode == 0, done.stderr
    assert gen.groups()[0]["rollouts"][0]["usage"]["retries"] == 12


def test_B03_paused_for_too_long(gen_for: GenFor) -> None:
    gen = gen_for(script=[{"status": 503, "json": {"error": {"code": "paused"}}, "times": -1}])
    done = gen("--max-wait", "1")
    assert done.returncode == 5
    assert "gave up after 1 s" in done.stderr


def test_B05_connections_closed_without_an_answer(gen_for: GenFor) -> None:
    gen = gen_for("B05")
    done = gen()
    assert done.returncode == 0, done.stderr
    assert len(gen.groups()) == 10
    # The log names the fault once per kind.
    assert done.stderr.count("retrying") == 1


def test_B06_the_server_dies_and_stays_dead(gen_for: GenFor) -> None:
    gen = gen_for(delay=0.02)
    child = subprocess.Popen(
        gen.command("--count", "50", "--workers", "1", "--max-wait", "3"), stderr=subprocess.PIPE, text=True
    )
    while gen.sent < 5:
        time.sleep(0.01)
    gen.server.stop()
    began = time.monotonic()
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 5
    assert time.monotonic() - began < 20
    assert f"127.0.0.1:{gen.server.port}" in errors
    assert "--resume" in errors
    assert 4 <= len(gen.groups()) < 50
    gen.server.start()
    assert gen("--count", "50", "--resume").returncode == 0
    assert len(gen.groups()) == 50


@pytest.mark.parametrize("first", [0, 1])
def test_B12_an_error_object_with_status_200(gen_for: GenFor, first: int) -> None:
    gen = gen_for(script=row("B12")["input"]["mock_server"][first:])
    done = gen("--workers", "1", "--count", "2")
    assert "TypeError" not in done.stderr
    if first == 1:  # an empty choices list: tried again
        assert (done.returncode, len(gen.groups())) == (0, 2)
    else:  # code 400 inside the body: a rejection, with the server's words
        assert (done.returncode, len(gen.groups())) == (1, 1)
        assert "chat is not available for this model" in gen.failures()[0]["message"]


def test_B13_all_the_text_is_in_the_reasoning(gen_for: GenFor) -> None:
    gen = gen_for("B13")
    assert gen().returncode == 0
    (group,) = gen.groups()
    (rollout,) = group["rollouts"]
    reply = rollout["messages"][-1]
    assert reply["reasoning"].startswith("6*7 is 42")
    assert not reply.get("content")
    assert (rollout["stop_reason"], rollout["reward"]) == ("length", 0.0)


def test_B16_n_is_ignored(gen_for: GenFor) -> None:
    gen = gen_for("B16")
    assert gen("--group-size", "4").returncode == 0
    (group,) = gen.groups()
    assert len(group["rollouts"]) == 4
    assert [request.json.get("n", 1) for request in gen.server.generations] == [4, 1, 1, 1]
    summary = json.loads((gen.run / "summary.json").read_text())
    assert summary["backend"]["capabilities"]["n"] is False


def test_B18_logprobs_are_null(gen_for: GenFor) -> None:
    gen = gen_for("B18")
    needed = gen("--logprobs", "require", "--count", "20")
    assert needed.returncode == 5
    assert "logprobs" in needed.stderr
    assert "hint:" in needed.stderr
    assert gen.sent == 1
    optional = gen("--count", "5", "--overwrite")
    assert optional.returncode == 0
    assert all("tokens" not in g["rollouts"][0]["messages"][-1] for g in gen.groups())
    assert optional.stderr.count("gives no choices[].logprobs") == 1


def test_B20_sampled_ids_are_kept_as_they_are(gen_for: GenFor) -> None:
    answer = {
        "prompt_token_ids": [9, 8],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "ab"},
                "token_ids": [1, 2],
                "logprobs": {"content": [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -0.2}]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 2},
    }
    gen = gen_for(script=[{"json": answer, "times": -1}])
    assert gen().returncode == 0
    tokens = gen.groups()[0]["rollouts"][0]["messages"][-1]["tokens"]
    assert (tokens["ids"], tokens["mask"], tokens["logprobs"]) == ([1, 2], True, [-0.1, -0.2])


def test_B22_the_context_is_outgrown(gen_for: GenFor) -> None:
    gen = gen_for("B22")
    assert gen("--turns", "10", "--workers", "1", "--max-failure-rate", "1").returncode == 0
    rollout = gen.groups()[0]["rollouts"][0]
    assert rollout["stop_reason"] == "context_length"
    assert [m["role"] for m in rollout["messages"]].count("assistant") == 3
    assert rollout["reward"] == 0.0
    assert gen.sent == 4


def test_B24_a_tool_call_comes_back_as_text(gen_for: GenFor) -> None:
    gen = gen_for("B24")
    done = gen("--count", "2", "--json")
    assert json.loads(done.stdout)["metrics"]["tool_calls_in_text"] == 2


def test_B26_no_chat_template(gen_for: GenFor) -> None:
    gen = gen_for("B26")
    done = gen("--count", "1000", "--workers", "32")
    assert done.returncode == 5
    assert gen.sent == 1
    assert "chat template" in done.stderr
    assert "--endpoint completions" in done.stderr


def test_B28_the_server_never_answers(gen_for: GenFor) -> None:
    gen = gen_for("B28")
    done = gen("--request-timeout", "1")
    assert done.returncode == 0, done.stderr
    assert gen.sent == 2


def test_B28_ctrl_c_works_while_waiting(gen_for: GenFor) -> None:
    gen = gen_for(script=[{"action": "hang", "times": -1}])
    child = subprocess.Popen(gen.command("--drain", "0.5"), stderr=subprocess.PIPE, text=True)
    while not gen.sent:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=15)
    assert child.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_H11_stopped_after_a_while(gen_for: GenFor, number: int) -> None:
    gen = gen_for(delay=0.1)
    child = subprocess.Popen(gen.command("--count", "50", "--workers", "2"), stderr=subprocess.PIPE, text=True)
    while gen.sent < 12:
        time.sleep(0.02)
    child.send_signal(number)
    _, errors = child.communicate(timeout=20)
    assert child.returncode == 130
    assert "Traceback" not in errors
    assert f"{len(gen.groups())} of 50" in errors
    assert "--resume" in errors
    # No new requests: only those that were in flight were finished.
    assert 11 <= len(gen.groups()) == gen.sent <= 16


def test_H11_ctrl_c_twice(gen_for: GenFor) -> None:
    gen = gen_for(script=[{"reply": "ok", "times": 5}, {"action": "hang", "times": -1}])
    child = subprocess.Popen(gen.command("--count", "50", "--workers", "2"), stderr=subprocess.PIPE, text=True)
    while gen.sent < 7:
        time.sleep(0.02)
    began = time.monotonic()
    for _ in range(2):
        child.send_signal(signal.SIGINT)
        time.sleep(0.3)
    _, errors = child.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert child.returncode == 130
    assert "Traceback" not in errors
    assert len(gen.groups()) == 5


def test_H13_piped_into_head(gen_for: GenFor) -> None:
    gen = gen_for(reply="w" * 20_000)
    command = gen.command("--count", "200")
    command[command.index("-o") + 1] = "-"
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    assert json.loads(child.stdout.readline())["task"]["id"] == "p0"
    child.stdout.close()
    errors = child.stderr.read()
    assert child.wait(20) in (0, 141)
    assert "Traceback" not in errors
    assert gen.sent < 200


def test_H14_no_control_codes_without_a_terminal(gen_for: GenFor) -> None:
    gen = gen_for()
    done = gen("--count", "3", "--json", env={**os.environ, "FORCE_COLOR": "0"})
    assert "\x1b" not in done.stderr
    assert "\r" not in done.stderr
    json.loads(done.stdout)
