"""`atropos runs`: the state it tells is true, and no folder, whatever is in it, stops or slows it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.io.rundir import open_run
from atropos_cli.runs.entry import RunReader
from atropos_cli.runs.listing import list_runs

SCRIPTED = ("--backend", "scripted", "--backend.replies", "4", "--group-size", "2")
PLAN = {"digest": "d", "command": "gen", "environment": {"name": "sums", "config": {"level": "easy"}}, "model": "m"}


def make(folder: Path, state: str | None = "finished", **more: Any) -> Path:
    """A run as its files have it."""
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({**PLAN, **more.pop("plan", {})}))
    if state is not None:
        told = {"state": state, "env": "sums", "groups_done": 3, "groups_total": 4, "reward_mean": 0.5, **more}
        (folder / "summary.json").write_text(json.dumps(told))
    start = {"time": "2026-01-02T10:00:00+00:00", "event": "started", "total": 4}
    (folder / "log.jsonl").write_text(json.dumps(start) + "\n")
    return folder


def states(*folders: Path) -> dict[str, str]:
    return {Path(entry.run).name: entry.state for entry in list_runs(folders or [Path("runs")]).entries}


def test_a_real_run_an_evaluation_and_a_training(cli: Any, sums: str) -> None:
    assert "no runs below runs" in cli("runs").stderr
    assert cli("gen", sums, *SCRIPTED, "--count", "3", "-o", "runs/a").code == 0
    assert cli("eval", sums, *SCRIPTED[:4], "-o", "runs/deep/er/b").code == 0
    train = Path("runs/c")
    train.mkdir()
    (train / "plan.json").write_text(json.dumps({"command": "train", "method": "grpo", "steps": 5, "model": "m"}))
    (train / "train.json").write_text(json.dumps({"state": "stopped", "stopped": "loss is not finite"}))
    rows = [{"step": 0, "eval/held/accuracy": 0.5}, {"step": 1, "reward": 0.1}, {"step": 2, "reward": None}]
    rows += [{"step": 3, "reward": 0.6, "eval/held/accuracy": 0.9}]
    (train / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 4, "rew')
    told = cli("runs", "--json").json
    by_name = {Path(run["run"]).name: run for run in told["runs"]}
    assert (told["found"], told["matching"], told["notes"]) == (3, 3, [])
    a, b, c = (by_name[name] for name in "abc")
    assert (a["kind"], a["state"], a["env"], a["done"], a["total"], a["rollouts"]) == (
        "gen",
        "finished",
        "sums",
        3,
        3,
        6,
    )
    assert (a["reward"], a["zero_std_groups"], a["next"]) == (pytest.approx(1 / 3), 3, "atropos view runs/a")
    assert (b["kind"], b["accuracy"], b["done"]) == ("eval", pytest.approx(0.2), 5)
    assert (c["kind"], c["state"], c["error"], c["done"], c["total"]) == (
        "train",
        "stopped",
        "loss is not finite",
        3,
        5,
    )
    assert (c["accuracy_first"], c["accuracy"], c["reward_first"], c["reward"]) == (0.5, 0.9, 0.1, 0.6)
    text = cli("runs")
    assert "sums count=3" in text.stdout
    assert "sums count=5" in text.stdout
    assert "accuracy 0.500 -> 0.900" in text.stdout
    assert text.stderr.startswith("next: atropos view runs/")


def test_a_run_is_running_while_its_lock_is_held_and_interrupted_after_kill_9(cli: Any) -> None:
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from atropos_cli.io.rundir import open_run\n"
        "run = open_run(Path('runs/a'))\n"
        f"(run.folder / 'plan.json').write_text('''{json.dumps(PLAN)}''')\n"
        "run.log('started', total=9)\n"
        '(run.folder / \'summary.json\').write_text(\'{"state": "running", "groups_done": 2, "groups_total": 9}\')\n'
        '(run.folder / \'groups.jsonl\').write_text(\'{"group_id":"d-1","last":true}\\n\' * 3)\n'
        "print('ready', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (run,) = cli("runs", "--json").json["runs"]
        assert (run["state"], run["done"], run["next"]) == ("running", 3, "atropos view runs/a")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (run,) = cli("runs", "--json").json["runs"]
    assert (run["state"], run["done"], run["total"], run["next"]) == ("interrupted", 3, 9, "atropos run runs/a")
    assert "runs/a was broken off; to go on: atropos run runs/a" in cli("runs").stderr
    held = open_run(Path("runs/a"), resume=True)
    assert states() == {"a": "running"}
    held.close()
    assert states() == {"a": "interrupted"}


def test_states_from_records(isolation: Path) -> None:
    here, there = socket.gethostname(), "gpu-node-7.example"
    root = isolation / "runs"
    for state in ("finished", "interrupted", "failed"):
        make(root / state, state)
    make(root / "killed", "running")
    make(root / "fresh", "running").joinpath("lock").write_text(f"pid 1 on {there} since x\n")
    silent = make(root / "silent", "running")
    (silent / "lock").write_text(f"pid 1 on {there} since x\n")
    over = make(root / "over", "running")
    (over / "lock").write_text(f"pid 1 on {there} since x\n")
    (over / "exit.json").write_text('{"code": 137}')
    longer = make(root / "longer", "finished", groups_done=4, groups_total=9)  # made longer, then killed at once
    (longer / "lock").write_text(f"pid 1 on {here} since x\n")
    for path in silent.iterdir():
        os.utime(path, (time.time() - 3600,) * 2)
    (root / "plan").mkdir()
    (root / "plan" / "plan.json").write_text(json.dumps(PLAN))
    assert states() == {
        "finished": "finished",
        "interrupted": "interrupted",
        "failed": "failed",
        "killed": "interrupted",
        "fresh": "running",
        "silent": "lost",
        "over": "interrupted",
        "longer": "interrupted",
        "plan": "planned",
    }


def test_shards_are_one_run(isolation: Path) -> None:
    for index, (state, done, reward) in enumerate([("finished", 4, 1.0), ("running", 2, 0.0)]):
        make(isolation / "runs/big/shards" / str(index), state, groups_done=done, reward_mean=reward, rollouts=4 * done)
    (entry,) = list_runs([Path("runs")]).entries
    assert (entry.run, entry.state, entry.shards) == ("runs/big", "interrupted", 2)
    assert (entry.done, entry.total, entry.reward) == (6, 8, pytest.approx(2 / 3))


def test_odd_folders_make_a_line_or_a_note(isolation: Path, cli: Any) -> None:
    root = isolation / "runs"
    make(root / "good")
    for name, text in (("torn", '{"digest": "d", "env'), ("list", "[1, 2]"), ("empty", ""), ("binary", "\x00\xff")):
        (root / name).mkdir()
        (root / name / "plan.json").write_text(text)
    make(root / "shapes", None, plan={"environment": [1], "model": {"a": 1}, "limit": "x", "digest": 5})
    (root / "shapes" / "summary.json").write_text('{"state": ["running"], "groups_done": -3, "reward_mean": NaN}')
    hostile = make(root / "hostile", error="\x1b[31mred\u202e", env="<script>alert(1)</script>\nrow")
    (hostile / "eval.json").write_text('{"accuracy": "high"}')
    os.mkfifo(make(root / "pipe") / "metrics.jsonl")
    pipes = root / "pipes"
    pipes.mkdir()
    for name in ("plan.json", "summary.json", "log.jsonl", "lock", "groups.jsonl"):
        os.mkfifo(pipes / name)
    for name in ("exit.json", "lock"):  # both are asked whether it still runs
        os.mkfifo(make(root / "ended", None) / name if name == "exit.json" else root / "ended" / name)
    circle = make(root / "circle", None) / "shards"
    circle.mkdir()
    for name in "01":
        (circle / name).symlink_to("..")
    long = make(root / "long", None)
    (long / "summary.json").write_text('{"state": "finished", "reward_mean": 1%s, "groups_done": 4}' % ("0" * 400))
    (root / "loop").symlink_to(root)
    (root / "self").symlink_to("self")
    (root / "again").symlink_to(root / "good")
    (root / "stranger").mkdir()
    (root / "stranger" / "notes.txt").write_text("x")
    (root / "job").mkdir()
    (root / "job" / "job.json").write_text("{}")
    got = cli("runs")
    assert got.code == 0
    found = states()
    assert {name: found[name] for name in ("torn", "list", "empty", "binary")} == dict.fromkeys(
        ("torn", "list", "empty", "binary"), "unreadable"
    )
    assert len([name for name in found if name in ("good", "again")]) == 1
    assert not {"stranger", "loop", "self", "job"} & set(found)
    assert (found["pipe"], found["long"]) == ("finished", "finished")
    assert {"circle", "ended"} <= set(found)
    assert "1 jobs that hold no run" in got.stderr
    assert "\x1b" not in got.stdout
    assert "\u202e" not in got.stdout
    assert cli("runs", "--json").json["found"] == len(found)


def test_a_run_without_rollouts_is_not_offered_for_viewing(isolation: Path, cli: Any) -> None:
    """Training on stored rows has none; the others may not have come so far."""
    root = isolation / "runs"
    trained = make(root / "sft", None, plan={"command": "train", "method": "sft", "steps": 1})
    (trained / "train.json").write_text('{"state": "finished"}')
    (trained / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "loss": 0.5}\n')
    (trained / "samples.jsonl").write_text('{"step": 1, "completion": "x"}\n')
    make(root / "early", "failed", error="no server")
    os.mkfifo(make(root / "pipe", "failed") / "groups.jsonl")
    part = make(root / "parts" / "shards" / "0")
    (part / "groups.jsonl").write_text("")
    (root / "parts" / "plan.json").write_text(json.dumps(PLAN))
    got = cli("runs")
    assert "atropos view" not in got.stderr
    for name, told, hint in (
        ("sft", "a training run without rollouts of its own", "metrics.jsonl"),
        ("early", "a run without rollouts so far", "atropos runs runs/early"),
        ("pipe", "a run without rollouts so far", "atropos runs runs/pipe"),
        ("parts", "a run in shards that are not joined yet", "runs/parts/shards/0"),
    ):
        for command in ("view", "analyze"):
            said = cli(command, f"runs/{name}")
            assert (said.code, told in said.stderr, hint in said.stderr) == (6, True, True), said.stderr


def test_filters(isolation: Path, cli: Any) -> None:
    root = isolation / "runs"
    make(root / "a", "finished")
    make(root / "b", "failed", env="words", plan={"model": "Qwen/Qwen3-8B"})
    make(root / "c", "running")
    (root / "c" / "log.jsonl").write_text(
        json.dumps({"time": datetime.now(UTC).isoformat(), "event": "started"}) + "\n"
    )

    def chosen(*args: str) -> list[str]:
        return [Path(run["run"]).name for run in cli("runs", "--json", *args).json["runs"]]

    assert chosen() == ["c", "b", "a"]
    assert chosen("--state", "failed") == ["b"]
    assert chosen("--state", "failed,interrupted", "-n", "1") == ["c"]
    assert chosen("--env", "word*") == chosen("--model", "qwen3") == ["b"]
    assert chosen("--since", "2d") == ["c"]
    assert chosen("--since", "2025-12-31") == ["c", "b", "a"]
    assert chosen("--kind", "train") == []
    assert chosen("runs/a", "runs", "runs/a/../b") == ["c", "b", "a"]
    nothing = cli("runs", "--env", "nothing")
    assert nothing.code == 0
    assert "environments: sums, words" in nothing.stderr
    for args, hint in (
        (("--state", "done"), "one of running, finished"),
        (("--since", "yesterday"), "an age such as"),
        (("--kind", "x"), "one of gen, eval, train"),
        (("nowhere",), "where the run folders are"),
        (("runs/a/plan.json",), "where the run folders are"),
    ):
        got = cli("runs", *args)
        assert got.code in (2, 6)
        assert hint in got.stderr


def test_a_thousand_runs_and_huge_files_take_no_time(isolation: Path) -> None:
    root = isolation / "runs"
    for index in range(1000):
        make(root / f"r{index}", "finished" if index % 9 else "running")
    huge = make(root / "huge", "running")
    for name in ("groups.jsonl", "eval.json", "metrics.jsonl", "log.jsonl"):
        with (huge / name).open("ab") as file:
            file.truncate(1 << 40)
    reader = RunReader()
    before = time.process_time()
    first = list_runs([root], reader)
    took = time.process_time() - before
    assert len(first.entries) == 1001
    assert took < 2.0
    before = time.process_time()
    assert list_runs([root], reader) == first
    assert time.process_time() - before < took


def test_odd_names_and_values(isolation: Path, cli: Any) -> None:
    root = os.fsencode(isolation / "runs")
    for name in (b"bad-\xff", b"new\nline", b"with 'quote", b"-rf"):
        os.makedirs(os.path.join(root, name))
        Path(os.fsdecode(os.path.join(root, name, b"plan.json"))).write_text(
            '{"environment": {"name": "e", "config": {"a": NaN, "b": "x"}}, "model": "\\ud800m"}'
        )
    for name, time_text in (
        ("early", "0001-01-01T00:00:00+23:59"),
        ("late", "9999-12-31T23:59:59-23:59"),
        ("no", "x"),
        ("zone", "2026-01-02T03:00:00+02:00"),
    ):
        make(isolation / "runs" / name)
        (isolation / "runs" / name / "log.jsonl").write_text(json.dumps({"time": time_text, "event": "started"}) + "\n")
    (isolation / "runs" / "deep").mkdir()
    (isolation / "runs" / "deep" / "plan.json").write_text('{"a":' * 5000 + "1" + "}" * 5000)
    for args in ((), ("--json",)):
        assert cli("runs", *args).code == 0
    os.chdir(isolation / "runs")
    runs = {run["run"]: run for run in cli("runs", ".", "--json").json["runs"]}
    assert runs["-rf"]["next"] == "atropos run ./-rf"
    assert runs["with 'quote"]["next"] == "atropos run 'with '\"'\"'quote'"
    assert runs["-rf"]["options"] == {"a": None, "b": "x"}
    assert runs["zone"]["started"] == "2026-01-02T01:00:00+00:00"
    assert runs["deep"]["state"] == "unreadable"
    os.chdir(isolation)
    for option in (("--export", "x.html"), ("--diff", "runs")):
        got = cli("view", "runs", *option)
        assert (got.code, "folder of runs" in got.stderr) == (2, True)
