"""`atropos env`, `atropos reward`, `atropos new`, `atropos doctor`."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest


def test_lists(cli: Any) -> None:
    rewards = cli("reward", "list", "--json").json
    assert {item["name"] for item in rewards} >= {"exact_match", "numeric_match"}
    assert "exact_match" in cli("reward", "list").stdout
    assert cli("env", "list", "--json").code == 0


def test_info(cli: Any, sums: str) -> None:
    got = cli("env", "info", sums)
    assert got.code == 0
    assert "splits:  train, test" in got.stdout
    assert "rewards: exact=1" in got.stdout
    assert "A longer text." in got.stdout
    assert "inner.depth" in got.stdout
    data = cli("env", "info", sums, "--json").json
    options = {option["name"]: option for option in data["options"]}
    assert options["count"] == {
        "name": "count",
        "flag": "--env.count",
        "type": "INTEGER",
        "repeatable": False,
        "required": False,
        "default": 5,
        "range": ">= 1",
        "description": "Number of sums.",
    }
    assert options["token"]["flag"] is None
    assert data["rewards"] == [{"name": "exact", "weight": 1.0, "kind": "rollout", "summary": "1.0 for the sum."}]


def test_check_proves_gold_answers(cli: Any, sums: str) -> None:
    good = cli("env", "check", sums, "--limit", "3", "--json")
    assert good.code == 0, good.stderr
    assert good.json["tasks"] == 3
    assert good.json["gold"] == {"ok": 3, "failed": 0, "unchecked": 0}
    assert good.json["episodes"] == 3
    bad = cli("env", "check", sums, "--wrong", "--count", "2", "--split", "test")
    assert bad.code == 1
    assert "0 ok, 2 failed" in bad.stdout
    assert "task test-0: the gold answer does not earn full marks" in bad.stdout
    assert cli("env", "check", sums, "--split", "nope").code == 2
    assert cli("env", "check", sums, "--cuont", "2").code == 2
    assert "--workers" in cli("env", "check", sums, "--help").stdout  # free here: no run options stand in its way


BAD = """
from atropos_cli.sdk import Environment, Episode, Task, user

class Twice(Environment):
    name = "twice"
    def tasks(self, split):
        yield Task(id="a", prompt=(user("x"),))
        yield Task(id="a", prompt=(user("y"),))
        raise RuntimeError("source is gone")

class NoReset(Environment):
    name = "no-reset"
    closed = []
    def tasks(self, split):
        return [Task(id="a")]
    def episode(self, task):
        class Broken(Episode):
            async def reset(self):
                raise ValueError("cannot begin")
            def step(self, reply):
                return None
            def close(self):
                NoReset.closed.append(1)
        return Broken()
    async def validate(self, task):
        raise KeyError("answer")

class Empty(Environment):
    name = "empty"
    def tasks(self, split):
        return []
"""


NAMED = """
from atropos_cli.sdk import Config, Environment, Field, Task, user

class NamedConfig(Config):
    wrong: bool = Field(default=False, description="Give a gold answer that its reward cannot read.")

class Named(Environment):
    name = "named"
    Config = NamedConfig
    rewards = ("numeric_match", "exact_match=0")
    def tasks(self, split):
        answer = "two" if self.config.wrong else 2
        return [Task(id="a", prompt=(user("1+1?"),), answer=answer), Task(id="b", prompt=(user("?"),))]
"""


def test_check_scores_gold_answers_by_installed_rewards(cli: Any, isolation: Path) -> None:
    (isolation / "named.py").write_text(NAMED)
    good = cli("env", "check", "./named.py:Named", "--json")
    assert good.code == 0, good.stderr
    assert good.json["gold"] == {"ok": 1, "failed": 0, "unchecked": 1}
    bad = cli("env", "check", "./named.py:Named", "--wrong", "--json")
    assert bad.code == 1
    assert bad.json["gold"] == {"ok": 0, "failed": 1, "unchecked": 1}
    assert bad.json["problems"][0]["task"] == "a"


def test_an_environment_gives_weights_to_installed_rewards(cli: Any, isolation: Path) -> None:
    (isolation / "named.py").write_text(NAMED)
    info = cli("env", "info", "./named.py:Named", "--json").json
    assert [(item["name"], item["weight"]) for item in info["rewards"]] == [
        ("numeric_match", None),
        ("exact_match", 0.0),
    ]
    got = cli(
        "gen", "./named.py:Named", "--backend", "scripted", "--limit", "1", "--group-size", "1", "--dry-run", "--json"
    )
    assert got.code == 0, got.stderr
    rewards = json.loads(got.stdout)["rewards"]
    assert [(item["name"], item["weight"]) for item in rewards] == [("numeric_match", 1.0), ("exact_match", 0.0)]
    (isolation / "wrong.py").write_text(NAMED.replace("exact_match=0", "exact_match=much"))
    wrong = cli("gen", "./wrong.py:Named", "--backend", "scripted", "--dry-run")
    assert wrong.code == 2
    assert "'much' is not a number" in wrong.stderr


LEAVES = """
import sys
from atropos_cli.sdk import Environment, SingleTurn, Task, reward, user

@reward
def one(task, rollout):
    return 1.0

class Ends(SingleTurn):
    def close(self):
        sys.exit(4)

class Leaves(Environment):
    name = "leaves"
    rewards = (one,)

    def tasks(self, split):
        return [Task(id="a", prompt=(user("go"),))]

    def episode(self, task):
        return Ends(task)

    def validate(self, task):
        sys.exit(3)
"""


def test_check_finds_what_is_broken(cli: Any, isolation: Path) -> None:
    (isolation / "bad.py").write_text(BAD)
    twice = cli("env", "check", "./bad.py:Twice", "--json")
    assert twice.code == 1
    assert [problem["message"] for problem in twice.json["problems"]] == [
        "tasks 0 and 1 have the same id",
        "tasks() failed: RuntimeError: source is gone",
    ]
    reset = cli("env", "check", "./bad.py:NoReset", "--json")
    assert reset.code == 1
    assert [problem["message"] for problem in reset.json["problems"]] == [
        "validate() failed: KeyError: 'answer'",
        "reset() failed: ValueError: cannot begin",
    ]
    (isolation / "leaves.py").write_text(LEAVES)
    leaves = cli("env", "check", "./leaves.py:Leaves", "--json")
    assert leaves.code == 1
    assert [problem["message"] for problem in leaves.json["problems"]] == [
        "validate() failed: SystemExit: 3",
        "close() failed: SystemExit: 4",
    ]
    empty = cli("env", "check", "./bad.py:Empty", "--json")
    assert empty.code == 1
    assert empty.json["problems"][0]["message"] == "split 'train' has no tasks"


def test_doctor_on_this_machine(cli: Any) -> None:
    got = cli("doctor", "--json")
    assert got.code == 0, got.stdout
    checks = {check["name"]: check for check in got.json["checks"]}
    assert checks["python"]["status"] == "ok"
    assert checks["run folder"]["status"] in ("ok", "warn")
    assert checks["plugin builtin"]["status"] == "ok"
    assert not Path("runs").exists()
    assert {"gpu", "tmux", "sbatch", "pydantic"} <= set(checks)
    assert "\x1b" not in cli("doctor").stdout


def test_doctor_tells_the_gpus_and_what_is_chosen_for_them(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "{}, Tesla V100-SXM2-32GB, 32768, 3, 535.161.08, GPU-{}, [N/A], 7.0"
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(line.format(n, n) for n in range(4)) + "\nEND\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    got = cli("doctor", "--json").json
    checks = {check["name"]: check["detail"] for check in got["checks"]}
    assert checks["gpu"].startswith("2 x Tesla V100-SXM2-32GB (32 GiB), compute capability 7.0, no bfloat16")
    assert "2 more hidden by CUDA_VISIBLE_DEVICES" in checks["gpu"]
    assert checks["launch-vllm"].startswith("dtype float16, attention TRITON_ATTN, memory 0.9, 64 requests at once")
    assert (got["platform"]["profile"], got["defaults"]["vllm"]["dtype"]) == ("v100", "float16")
    training = got["defaults"]["train"]
    assert (training["precision"], training["rows"], training["checkpointing"]) == ("fp32", 4, True)
    assert "no bfloat16" in next(check["detail"] for check in got["checks"] if check["name"] == "train")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES hides all 4 GPUs" in cli("doctor").stdout


def test_doctor_names_a_plugin_once(cli: Any, install: Any) -> None:
    code = """
from atropos_cli.sdk import hookimpl

@hookimpl
def atropos_doctor():
    return [("mine", "ok", "a"), ("mine: torch", "ok", "b"), ("disk", "ok", "c")]
"""
    install("mine-dist", {"mine_x.py": code}, {"atropos": {"mine": "mine_x"}})
    names = [check["name"] for check in cli("doctor", "--json").json["checks"]]
    assert {"mine", "mine: torch", "mine: disk"} <= set(names)
    assert not [name for name in names if name.startswith("mine: mine")]


def test_doctor_fails_for_a_broken_plugin_and_an_unwritable_folder(cli: Any, install: Any) -> None:
    install("sick-dist", {"sick_x.py": "raise RuntimeError('sick')"}, {"atropos": {"sick": "sick_x"}})
    got = cli("doctor")
    assert got.code == 1
    assert "fail  plugin sick: " in got.stdout
    Path("file").write_text("")
    checks = {check["name"]: check for check in cli("doctor", "--runs", "file/runs", "--json").json["checks"]}
    assert checks["run folder"]["status"] == "fail"


class Models(BaseHTTPRequestHandler):
    seen: list[str | None] = []  # noqa: RUF012

    def do_GET(self) -> None:
        Models.seen.append(self.headers.get("Authorization"))
        body = json.dumps({"data": [{"id": "tiny"}]}).encode() if self.path == "/v1/models" else b"<html>"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        return None


@pytest.fixture
def server() -> Iterator[str]:
    Models.seen.clear()
    httpd = HTTPServer(("127.0.0.1", 0), Models)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_doctor_asks_a_server_only_when_told(cli: Any, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-you")
    assert cli("doctor").code == 0
    assert Models.seen == []
    got = cli("doctor", "--base-url", f"{server}/v1")
    assert got.code == 0
    assert "models: tiny" in got.stdout
    assert Models.seen == [None]
    assert cli("doctor", "--base-url", f"{server}/other").code == 1
    down = cli("doctor", "--base-url", "http://127.0.0.1:9/v1")
    assert down.code == 1
    assert "no answer" in down.stdout
    assert cli("doctor", "--base-url", "nonsense").code == 1


def test_new_refuses_what_it_cannot_make(cli: Any) -> None:
    got = cli("new", "nonsense", "x")
    assert got.code == 4
    assert got.stderr.startswith("error: there is no template 'nonsense'")


def test_new_makes_a_project_or_says_what_it_would_make(cli: Any) -> None:
    dry = cli("new", "environment", "my-maze", "--into", "projects", "--dry-run", "--json")
    assert dry.code == 0, dry.stderr
    assert not Path("projects").exists()
    got = cli("new", "environment", "my-maze", "--into", "projects")
    assert got.code == 0, got.stderr
    folder = Path("projects/atropos-my-maze")
    assert got.stdout == f"{folder}\n"
    made = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert made == sorted(dry.json["files"])
    assert "src/atropos_my_maze/environment.py" in made
    again = cli("new", "environment", "my-maze", "--into", "projects")
    assert again.code == 6
    assert "is already there" in again.stderr
    assert cli("new", "reward", "../evil").code == 2
    assert cli("new", "reward", "Bad Name").stderr.splitlines()[1] == "hint: for example bad-name"


def test_a_made_environment_works(cli: Any) -> None:
    assert cli("new", "environment", "my-maze").code == 0
    (source,) = Path("atropos-my-maze/src").glob("*/environment.py")
    (name,) = (line.split()[1].split("(")[0] for line in source.read_text().splitlines() if "(Environment)" in line)
    got = cli("env", "check", f"./{source}:{name}", "--limit", "3")
    assert got.code == 0, got.stdout + got.stderr
