"""Halves of surrogate pairs in what an environment, a reward or an exception says: the run goes on, and is UTF-8."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

CODE = r"""
from atropos_cli.sdk import Environment, Episode, Task, TaskStream, reward, user

HALF = "\ud800"

class Halves(Episode):
    def __init__(self, kind):
        self.kind = kind
    def reset(self):
        if self.kind == "error":
            raise ValueError(f"half {HALF}")
        return [user(f"half {HALF}" if self.kind == "message" else "go")]
    def step(self, reply):
        return None
    def result(self):
        return {HALF: {"deep": [HALF]}} if self.kind == "result" else {}
    def metrics(self):
        return {f"half {HALF}": 1.0} if self.kind == "metric" else {}

@reward
def score(task, rollout):
    if task.info["kind"] == "reward":
        raise ValueError(f"half {HALF}")
    return 1.0

KINDS = ("message", "error", "result", "metric", "reward", "answer", "none")

class Env(Environment):
    name = "halves"
    rewards = (score,)
    def tasks(self, split):
        def make(index):
            kind = KINDS[index]
            return Task(id=kind, info={"kind": kind}, answer=HALF if kind == "answer" else "a")
        return TaskStream(make, len(KINDS))
    def episode(self, task):
        return Halves(task.info["kind"])
"""


def test_a_run_goes_on_and_what_it_writes_is_utf_8(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text(CODE)
    run = tmp_path / "run"
    words = ("gen", f"{tmp_path / 'halves.py'}:Env", "--backend", "scripted", "--backend.replies", "x")
    done = cli(*words, "--group-size", "1", "--max-failure-rate", "1", "-o", run)
    assert done.code == 0, done.stderr
    groups = {group["task"]["id"]: group for group in map(json.loads, (run / "groups.jsonl").open(encoding="utf-8"))}
    assert groups.keys() == {"message", "result", "metric", "answer", "none"}
    assert groups["message"]["rollouts"][0]["messages"][0]["content"] == "half \ufffd"
    assert list(groups["result"]["rollouts"][0]["info"].values()) == [{"deep": ["\ufffd"]}]
    failures = [json.loads(line) for line in (run / "failures.jsonl").open(encoding="utf-8")]
    assert {failure["task_id"]: failure["message"][-6:] for failure in failures} == {
        "error": "half \ufffd",
        "reward": "half \ufffd",
    }
    assert cli("analyze", run).code == 0
