"""Live rollouts through the real engine, by the real command line: learning, several groups per task, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atropos_local")

ENVIRONMENT = '''
from atropos_cli.sdk import Environment, Episode, Task, reward, user

LETTERS = "ABCDEFG"


@reward
def even(task, rollout):
    """Share of even digits among all that the model wrote; eight are asked for."""
    text = "".join(message.text for message in rollout.messages if message.role == "assistant")
    return sum(letter in "02468" for letter in text) / 8


class Letters(Environment):
    name = "letters"
    rewards = (even,)
    splits = ("train", "test")

    def tasks(self, split):
        pairs = [(a, b) for a in LETTERS for b in LETTERS]
        wanted = [pair for i, pair in enumerate(pairs) if (i % 4 == 0) == (split == "test")]
        return [Task(id=f"{split}-{a}{b}", prompt=(user(a + b),), answer="0") for a, b in wanted]


class Turns(Letters):
    """One group for each of two turns, of different sizes: what TRL cannot take."""

    name = "turns"

    async def roll_group(self, task, context):
        async for whole in context.roll_independent(self, task):
            for turn in range(2):
                part = whole.rollouts[: 3 + turn]
                yield context.group(task, part, episode_id=task.id, turn=turn, last=turn == 1)
'''


def atropos(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "atropos_cli", *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def grpo(tiny: Path, env: str = "Letters", **options: Any) -> list[str]:
    given = {
        "model": tiny,
        "env": f"./env.py:{env}",
        "trainer": "native",
        "algorithm": "dr_grpo",
        "learning_rate": 0.01,
        "prompts_per_step": 4,
        "group_size": 8,
        "max_tokens": 8,
        "steps": 20,
        **options,
    }
    flags = [(f"--{key.replace('_', '-')}", str(value)) for key, value in given.items()]
    return ["train", "grpo", *(word for pair in flags for word in pair)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    return tmp_path


def test_it_learns(tiny: Path, place: Path) -> None:
    """The share of even digits rises from chance, on held-out prompts too; deterministic by the seed."""
    done = atropos(*grpo(tiny, output="run", eval="held=./env.py:Letters", eval_every=10, save_every=10), cwd=place)
    assert done.returncode == 0, done.stderr
    rows = metrics(place / "run")
    rewards = [row["reward"] for row in rows if row["kind"] == "train"]
    assert len(rewards) == 20
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.3
    held = [(row["step"], row["eval/held/reward"]) for row in rows if row["kind"] == "eval"]
    assert [step for step, _ in held] == [0, 10, 20]
    assert held[-1][1] > held[0][1] + 0.3
    again = atropos("reevaluate", "run", "--json", cwd=place)
    assert again.returncode == 0, again.stderr
    values = json.loads(again.stdout)
    assert list(values) == ["step-10", "step-20", "model"]
    assert values["step-10"]["eval/held/reward"] == pytest.approx(held[1][1])
    assert values["model"]["eval/held/reward"] == pytest.approx(held[2][1])
    listed = atropos("journal", ".", "--json", cwd=place)
    (entry,) = json.loads(listed.stdout)
    assert entry["reevaluated"] == values
    assert entry["state"] == "finished"
    # Sampled here and computed here: both must call the same tokens equally likely.
    stored = atropos(
        *["train", "grpo", "--data", "run", "--trainer", "native", "--model", str(tiny), "--output", "again"],
        *["--prompts-per-step", "4", "--steps", "1", "--learning-rate", "0.01"],
        cwd=place,
    )
    assert stored.returncode == 0, stored.stderr
    (first,) = [row for row in metrics(place / "again") if row["kind"] == "train"]
    assert first["ratio"] == pytest.approx(1.0, abs=1e-4)
    assert first["reward"] == pytest.approx(rewards[0])


def test_sigterm_and_resume(tiny: Path, place: Path) -> None:
    """SIGTERM in the middle: exit code 130, then the same losses as a run without a break, and no step twice.

    W&B, offline, sees one run with all completions.
    """
    pytest.importorskip("wandb")
    whole = atropos(*grpo(tiny, output="whole", steps=12), cwd=place)
    assert whole.returncode == 0, whole.stderr
    words = grpo(tiny, output="cut", steps=12, track="wandb")
    command = [sys.executable, "-m", "atropos_cli", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ATROPOS_OFFLINE": "1"}
    process = subprocess.Popen(command, cwd=place, env=env, stderr=subprocess.PIPE, text=True)
    path, until = place / "cut" / "metrics.jsonl", time.monotonic() + 120
    while not path.exists() or path.read_text().count("\n") < 4:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    again = atropos(*words, "--resume", cwd=place, ATROPOS_OFFLINE="1")
    assert again.returncode == 0, again.stderr
    assert "resumed from step" in again.stderr
    rows, wanted = metrics(place / "cut"), metrics(place / "whole")
    assert [row["step"] for row in rows] == list(range(1, 13))
    for row, other in zip(rows, wanted, strict=True):
        for name in ("loss", "grad_norm", "reward"):
            assert row[name] == pytest.approx(other[name], rel=1e-5, abs=1e-8), (row["step"], name)
    kept = json.loads((place / "cut" / "trackers.json").read_text())["wandb"]
    runs = sorted((place / "cut" / "wandb").glob("offline-run-*"))
    assert [run.name.endswith(kept["id"]) for run in runs] == [True, True]
    parts = [json.loads(part.read_text()) for part in runs[-1].glob("files/media/table/samples/train_*.table.json")]
    assert parts[0]["columns"] == ["step", "prompt", "completion", "extracted", "expected", "reward", "correct"]
    assert sorted({row[0] for part in parts for row in part["data"]}) == list(range(1, 13))


def test_several_groups_of_several_sizes_from_each_task(tiny: Path, place: Path) -> None:
    done = atropos(*grpo(tiny, "Turns", output="run", steps=2, prompts_per_step=3), cwd=place)
    assert done.returncode == 0, done.stderr
    rows = metrics(place / "run")
    assert [row["rows"] for row in rows] == [3 * (3 + 4)] * 2
    assert all(row["grad_norm"] > 0 for row in rows)
    stored = [json.loads(line) for line in (place / "run" / "groups.jsonl").read_text().splitlines()]
    assert sorted({len(group["rollouts"]) for group in stored}) == [3, 4]
