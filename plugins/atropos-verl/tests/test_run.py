"""A run with a program in the place of verl: what it is given, and what comes back into the run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_verl.running import VerlRunning
from in_process import Result
from package_trainer import feigned

from atropos_cli.distributed import trainer

MAIN = Path(__file__).with_name("plain_main.py")
COMMON = ("train", "grpo", "--trainer", "verl")


@pytest.fixture
def train(cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """train("--steps", 2) with a GPU, and an installed verl that takes all settings, feigned."""
    return feigned(cli, monkeypatch, tmp_path, VerlRunning, MAIN, "0.9.1")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_that_breaks_off_and_is_resumed(train: Callable[..., Result], tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--steps", 3, "--prompts-per-step", 2, "--group-size", 2, "--save-every", 1)
    words = (*words, "--eval", "arithmetic_eval:limit=2")
    (tmp_path / "script").write_text("die 2")
    broken = train(*words)
    assert broken.code == 8
    assert "verl ended with code 7 after step 1 of 3" in broken.stderr
    assert "--resume" in broken.stderr
    ended = train(*words, "--resume")
    assert ended.code == 0, ended.stderr

    metrics = lines(run / "metrics.jsonl")
    assert [row["step"] for row in metrics if "loss" in row] == [1, 2, 3]
    assert all("training/epoch" not in row for row in metrics)
    evaluated = [row for row in metrics if "eval/arithmetic_eval/accuracy" in row]
    assert [row["step"] for row in evaluated][-1] == 3
    groups = lines(run / "groups.jsonl")
    assert sorted(int(group["group_id"].rpartition("-")[2]) for group in groups) == [0, 1, 2, 3, 4, 5]
    assert all(len(group["rollouts"]) == 2 for group in groups)
    spans = [m["tokens"] for g in groups for r in g["rollouts"] for m in r["messages"] if m["role"] == "assistant"]
    assert all(span["logprobs"][-1] == -0.5 for span in spans)
    assert (run / "model" / "model.safetensors").read_text() == "3"
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == ["step-2", "step-3"] or kept == ["step-1", "step-2", "step-3"]  # the best one stays as well
    assert json.loads((run / "train.json").read_text())["state"] == "finished"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--overrides", "data.shuffle=true"), "--overrides data.shuffle: set by atropos"),
        (("--overrides", "lr"), "'lr': not KEY=VALUE"),
        (("--python", "/nowhere"), "no Python at /nowhere"),
        (("--processes", 2), "starts the processes of its GPUs itself"),
        (("--stop", "x"), "--stop cannot be passed"),
        (("--env", "games", "--env.game", "kuhn"), "makes groups of its own"),
        (("--gpus", 4), "--gpus 4, and this node has 1"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(
    train: Callable[..., Result], tmp_path: Path, words: tuple[Any, ...], said: str
) -> None:
    ended = train("--steps", 1, *words)
    assert ended.code in (2, 3), ended.stderr
    assert said in ended.stderr
    assert not (tmp_path / "run" / "verl" / "verl.log").exists()


OWN = """
from atropos_cli.sdk import Environment, Task, group_reward, reward, user


@reward
def nines(task, rollout):
    return float("9" in rollout.text)


@group_reward
def shorter(task, rollouts):
    return [0.0 for _ in rollouts]


class Nines(Environment):
    name = "nines"
    rewards = (nines,)

    def tasks(self, split):
        return [Task(id=str(i), prompt=(user(str(i)),)) for i in range(8)]


class Compared(Nines):
    name = "compared"
    rewards = (nines, shorter)
"""


def test_rewards_of_the_environment_itself(train: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    words = ("--steps", 1, "--prompts-per-step", 2, "--group-size", 2)
    refused = train(*words, "--env", f"{tmp_path}/own.py:Compared")
    assert refused.code == 3
    assert "'shorter' compares the rollouts of a group" in refused.stderr
    members = ("--env.of", "arithmetic", "--env.of", f"{tmp_path}/own.py:Nines")
    mixed = train(*words, "--env", "mix", *members, "--dry-run")
    assert mixed.code == 0, mixed.stderr
    ended = train(*words, "--env", f"{tmp_path}/own.py:Nines")
    assert ended.code == 0, ended.stderr
    groups = lines(tmp_path / "run" / "groups.jsonl")
    assert {name for group in groups for one in group["rollouts"] for name in one["rewards"]} == {"nines"}


def test_a_machine_without_gpus(train: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "gpus_here", lambda: 0)
    ended = train("--steps", 1)
    assert ended.code == 3
    assert "none here" in ended.stderr
    shown = train("--steps", 1, "--dry-run", "--json")
    assert shown.code == 0, shown.stderr
    assert json.loads(shown.stdout)["derived"]["gpus"] == 8
