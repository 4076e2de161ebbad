"""Rewards that hang, over the real command line: deadlines, Ctrl-C once and twice, SIGTERM; nothing written is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

ATROPOS = Path(sys.executable).with_name("atropos")
KINDS = ("loops", "sleeps", "sleeps_async", "stubborn", "matches")
REWARDS = """
import asyncio, re, time
from pathlib import Path
from atropos_cli.sdk import Environment, Task, TaskStream, reward, user

def mark():
    Path("hangs").touch()

@reward
def loops(task, rollout):
    while task.id != "0":
        mark()
    return 1.0

@reward
def sleeps(task, rollout):
    while task.id != "0":
        mark()
        time.sleep(3600)
    return 1.0

@reward
async def sleeps_async(task, rollout):
    while task.id != "0":
        mark()
        await asyncio.sleep(3600)
    return 1.0

@reward
async def stubborn(task, rollout):
    while task.id != "0":
        mark()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
    return 1.0

@reward
def matches(task, rollout):
    if task.id != "0":
        mark()
        re.match("(a+)+$", "a" * 60 + "b")
    return 1.0

@reward
async def blocks(task, rollout):
    while task.id != "0":
        mark()
        time.sleep(3600)
    return 1.0

class Talking(Environment):
    name = "talking"
    splits = ("train", "test")
    def tasks(self, split):
        return TaskStream(lambda i: Task(id=str(i), prompt=(user(str(i)),)), length=2)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "talk.py").write_text(REWARDS)
    return tmp_path


def words(command: str, server: MockServer, kind: str, *more: str) -> list[str]:
    return [
        *(str(ATROPOS), command, "./talk.py:Talking", "--reward", f"./talk.py:{kind}", "--base-url", server.base_url),
        *("--group-size", "2", "--workers", "2", "-o", "run", *more),
    ]


def started(place: Path, command: list[str]) -> subprocess.Popen[str]:
    """The program, in the middle of a reward that hangs."""
    child = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    for _ in range(600):
        if (place / "hangs").exists() or child.poll() is not None:
            break
        time.sleep(0.05)
    time.sleep(0.3)
    assert child.poll() is None, child.communicate()[1]
    return child


def ended(child: subprocess.Popen[str], seconds: float) -> str:
    try:
        return child.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        raise AssertionError(f"it runs on after {seconds} s: {child.communicate()[1]}") from None


def summary(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "run" / "summary.json").read_text())
    return found


@pytest.mark.parametrize("command", ["gen", "eval"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_group_timeout_ends_it(place: Path, command: str, kind: str) -> None:
    with MockServer(reply="x") as server:
        child = started(place, words(command, server, kind, "--group-timeout", "1"))
        errors = ended(child, 40)
    assert child.returncode == 1, errors
    assert set(summary(place)["failures"]) == {"score:RewardTimeout"}
    assert len((place / "run" / "groups.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", KINDS)
def test_one_signal_ends_it_after_the_drain(place: Path, kind: str, number: signal.Signals) -> None:
    with MockServer(reply="x") as server:
        child = started(place, words("gen", server, kind, "--drain", "1"))
        child.send_signal(number)
        errors = ended(child, 15)
    assert child.returncode == 130, errors
    assert "--resume" in errors
    assert (summary(place)["state"], summary(place)["groups_done"]) == ("interrupted", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_ctrl_c_ends_it_at_once(place: Path, kind: str) -> None:
    with MockServer(reply="x") as server:
        child = started(place, words("gen", server, kind, "--drain", "3600"))
        child.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        errors = ended(child, 10)
    assert child.returncode == 130, errors
    assert summary(place)["groups_done"] == 1


def test_an_asynchronous_reward_that_blocks_the_loop_ends_with_the_second_ctrl_c(place: Path) -> None:
    with MockServer(reply="x") as server:
        child = started(place, words("gen", server, "blocks"))
        child.send_signal(signal.SIGINT)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        errors = ended(child, 10)
    assert child.returncode == 130, errors
    assert "what was written is kept" in errors
    assert len((place / "run" / "groups.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_score_ends_it_at_the_deadline_and_with_ctrl_c(place: Path, kind: str) -> None:
    with MockServer(reply="x") as server:
        rows = [*words("gen", server, "loops", "--limit", "1")]
        subprocess.run(rows, cwd=place, check=True, capture_output=True)
    line = json.loads((place / "run" / "groups.jsonl").read_text())
    line["task"]["id"] = "1"
    for rollout in line["rollouts"]:
        rollout["task_id"] = "1"
    (place / "rows.jsonl").write_text(json.dumps(line) + "\n")
    command = [str(ATROPOS), "score", "rows.jsonl", "-o", "out.jsonl", "--reward", f"./talk.py:{kind}"]
    child = started(place, [*command, "--deadline", "2"])
    errors = ended(child, 30)
    assert child.returncode == 1, errors
    assert {one["failure"]["type"] for one in json.loads((place / "out.jsonl").read_text())["rollouts"]} == {"Timeout"}
    (place / "hangs").unlink()
    child = started(place, [*command, "--deadline", "600", "--overwrite"])
    child.send_signal(signal.SIGINT)
    errors = ended(child, 10)
    assert child.returncode == 130, errors
