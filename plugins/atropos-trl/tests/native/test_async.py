"""Rollouts beside the optimiser, through the real command line: same as in turns at 0, learning, late tasks, kills."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_live import ENVIRONMENT, atropos, grpo, metrics

pytest.importorskip("atropos_local")

LATE = """
import asyncio


@reward
async def late(task, rollout):
    if task.id.endswith("CD"):
        await asyncio.sleep(4)
    return float(len(set(rollout.messages[-1].text)))


class Late(Letters):
    name = "late"
    rewards = (late,)
"""


@contextlib.contextmanager
def started(words: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed at the end, if it still runs."""
    command, env = [sys.executable, "-m", "atropos_cli", *words], {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until_steps(process: subprocess.Popen[str], run: Path, count: int) -> None:
    until = time.monotonic() + 600
    while not (run / "metrics.jsonl").exists() or len(metrics(run)) < count:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < until
        time.sleep(0.02)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def places(run: Path) -> list[int]:
    """The task of each group in the file."""
    return [int(group["group_id"].rpartition("-")[2].partition(".")[0]) for group in lines(run / "groups.jsonl")]


def trained(run: Path) -> list[int]:
    return [place for step in lines(run / "steporder.jsonl") for place in step["places"]]


def test_nought_is_the_same_run_to_the_bit(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    found = []
    for name, more in (("plain", {}), ("nought", {"async_steps": 0})):
        result = atropos(*grpo(tiny, steps=3, output=name, **more), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        rows = [{k: v for k, v in row.items() if k not in ("time", "step_time")} for row in metrics(tmp_path / name)]
        # The order in which requests arrive makes batches, and those the last bits of log-probabilities.
        groups = [
            [
                (message["content"], message["tokens"]["ids"])
                for rollout in group["rollouts"]
                for message in rollout["messages"]
            ]
            for group in lines(tmp_path / name / "groups.jsonl")
        ]
        found.append((rows, groups, (tmp_path / name / "model" / "model.safetensors").read_bytes()))
        plan = json.loads((tmp_path / name / "plan.json").read_text())
        assert plan["async_steps"] == 0
        assert not (tmp_path / name / "steporder.jsonl").exists()
    assert found[0] == found[1]


def test_all_passes_over_the_tasks_are_made(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    words = grpo(tiny, limit=6, epochs=3, async_steps=1, output="run")
    at = words.index("--steps")
    result = atropos(*words[:at], *words[at + 2 :], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    dropped = [place for step in lines(tmp_path / "run" / "steporder.jsonl") for place in step["dropped"]]
    assert sorted([*trained(tmp_path / "run"), *dropped]) == list(range(18))
    assert len(metrics(tmp_path / "run")) == 5


def test_learns_from_tokens_that_are_marked_with_their_weights(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    result = atropos(*grpo(tiny, steps=24, async_steps=2, output="run", eval="./env.py:Letters"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    run = tmp_path / "run"
    steps = [row for row in metrics(run) if row["kind"] == "train"]
    assert [row["step"] for row in steps] == list(range(1, 25))
    assert sum(row["reward"] for row in steps[-4:]) > sum(row["reward"] for row in steps[:4]) + 1
    assert {row["batch/age_max"] for row in steps} <= {0, 1, 2}
    assert max(row["batch/other_weights"] for row in steps) > 0
    assert any("importance" in row for row in steps)
    assert all(0 <= row[f"async/{side}_idle"] <= 1 for row in steps for side in ("optimiser", "sampler"))
    assert re.search(
        r"the optimiser waited \d+% for rollouts, and \d+% nothing was sampled; \d+ tasks? dropped", result.stderr
    )
    versions = {
        message["tokens"]["version"]
        for group in lines(run / "groups.jsonl")
        for rollout in group["rollouts"]
        for message in rollout["messages"]
        if message["role"] == "assistant"
    }
    # A step takes tokens that are at most two versions old, so of three versions in a row one at least was sampled.
    assert all(versions & {first, first + 1, first + 2} for first in range(22))
    assert sorted(trained(run)) == sorted(places(run))
    dropped = [place for step in lines(run / "steporder.jsonl") for place in step["dropped"]]
    assert sorted([*trained(run), *dropped]) == list(range(24 * 4 + len(dropped)))


def test_a_task_that_is_too_late_is_dropped_and_counted(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT + LATE)
    result = atropos(*grpo(tiny, "Late", steps=16, async_steps=1, output="run"), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    run = tmp_path / "run"
    dropped = [place for step in lines(run / "steporder.jsonl") for place in step["dropped"]]
    steps = [row for row in metrics(run) if row["kind"] == "train"]
    assert dropped
    assert sum(row["async/dropped"] for row in steps) == len(dropped)
    assert f"{len(dropped)} tasks dropped as older than 1 steps" in result.stderr
    assert not set(dropped) & set(trained(run))
    assert sorted(trained(run)) == sorted(places(run))
    assert all(len(step["places"]) == 4 for step in lines(run / "steporder.jsonl"))
    assert {row["batch/age_max"] for row in steps} <= {0, 1}


def test_killed_again_and_again(tiny: Path, tmp_path: Path) -> None:
    """Each task is learnt from once; steps that are made again are of the same groups, and give the same numbers."""
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    run, rng = tmp_path / "run", random.Random(1)
    words = grpo(tiny, "Turns", steps=16, async_steps=2, save_every=2, output="run")
    seen: dict[int, tuple[Any, ...]] = {}

    def look() -> None:
        for row in metrics(run) if (run / "metrics.jsonl").exists() else ():
            if row["kind"] == "train":
                told = tuple(row[name] for name in ("loss", "grad_norm", "reward", "rows"))
                assert seen.setdefault(row["step"], told) == pytest.approx(told, rel=1e-5, abs=1e-8)

    for number, least in enumerate((4, 7, 11)):
        with started([*words, *(["--resume"] if number else [])], tmp_path) as process:
            until_steps(process, run, least)
            time.sleep(rng.random())
        look()
    result = atropos(*words, "--resume", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    look()
    assert [step["step"] for step in lines(run / "steporder.jsonl")] == list(range(16))
    assert sorted(trained(run)) == list(range(16 * 4))
    count = Counter(places(run))
    assert count == dict.fromkeys(range(16 * 4), 2)  # a group for each of two turns
    assert sorted(seen) == list(range(1, 17))


@pytest.mark.parametrize("signals", [1, 2])
def test_interrupted(tiny: Path, tmp_path: Path, signals: int) -> None:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    run = tmp_path / "run"
    words = grpo(tiny, steps=4000, async_steps=3, save_every=2, output="run")
    with started(words, tmp_path) as process:
        until_steps(process, run, 5)
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        _, said = process.communicate(timeout=200)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    state = json.loads((run / "train.json").read_text())
    assert state["state"] == "interrupted"
    assert state["checkpoints"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--trainer", "trl", "--env", "arithmetic"), "the trainer trl needs rollouts of its own weights"),
        (("--trainer", "native", "--data", "x"), "only rollouts of an environment"),
        (("--trainer", "native", "--env", "arithmetic", "--curriculum", "kind"), "a curriculum chooses tasks"),
        (("--trainer", "native", "--env", "arithmetic", "--num-iterations", "2"), "a batch of --async-steps makes one"),
    ],
)
def test_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = atropos("train", "grpo", "--model", "smollm2", "--async-steps", "2", "--dry-run", *words, cwd=tmp_path)
    assert message in result.stderr
    assert result.returncode == (3 if "--num-iterations" in words else 2)
