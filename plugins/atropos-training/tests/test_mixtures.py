"""Mixtures and curricula while training: weights hold at every step, and a resumed training has the same tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import tiny_model

STUB = f"{Path(__file__).with_name('stub_trainer.py')}:Stub"
ENVIRONMENTS = """
from atropos_cli.sdk import Environment, Task, TaskStream, reward, user


@reward
def level(task, rollout):
    return {"easy": 1.0, "right": 0.5, "hard": 0.0}[task.info["level"]]


class Levels(Environment):
    name = "levels"
    rewards = (level,)

    def tasks(self, split):
        def make(index):
            kind = ("easy", "right", "hard")[index % 3]
            return Task(id=f"{kind}-{index}", prompt=(user(f"level {index}"),), info={"level": kind})

        return TaskStream(make)


class Few(Levels):
    name = "few"

    def tasks(self, split):
        return [Task(id=str(n), prompt=(user(f"few {n}"),), info={"level": "right"}) for n in range(3)]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small random model with a byte tokenizer."""
    return str(tiny_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def train(cli: Callable[..., Any], model: str) -> Callable[..., Any]:
    """train(*arguments): grpo with the stub trainer, into `run`."""
    Path("envs.py").write_text(ENVIRONMENTS)
    sizes = ("--steps", "6", "--prompts-per-step", "4", "--group-size", "2", "--max-tokens", "1")
    words = ("--trainer", STUB, "--model", model, "--backend.chat-template", "plain", "-o", "run", *sizes)
    begin = ("--trainer.begin-file", str(Path("begin").resolve()))
    return lambda *arguments: cli("train", "grpo", *words, *begin, *arguments)


def seen() -> list[list[str]]:
    """The task of each group, by step."""
    steps = json.loads(Path("run/seen.json").read_text())
    return [[ids[0] for ids in step] for step in steps]


MIX = ("--env", "mix", "--env.of", "./envs.py:Levels:weight=3", "--env.of", "./envs.py:Few")


def test_the_weights_hold_at_every_step(train: Callable[..., Any]) -> None:
    got = train(*MIX)
    assert got.code == 0, got.stderr
    for step in seen():
        assert sorted(task.partition("/")[0] for task in step) == ["few", "levels", "levels", "levels"]
    few = [task for step in seen() for task in step if task.startswith("few/")]
    # Three tasks, gone through once an epoch.
    assert sorted(few[:3]) == sorted(few[3:]) == ["few/0", "few/1", "few/2"]


def test_a_curriculum_goes_to_what_is_solved_half_of_the_time(train: Callable[..., Any]) -> None:
    got = train(*MIX, "--curriculum", "level", "--curriculum-window", "4")
    assert got.code == 0, got.stderr
    steps = seen()
    late = [task for step in steps[3:] for task in step if task.startswith("levels/")]
    assert sum("right" in task for task in late) > len(late) / 2
    Path("begin").write_text("2")
    got = train(*MIX, "--curriculum", "level", "--curriculum-window", "4", "--resume")
    assert got.code == 0, got.stderr
    assert seen() == steps[2:]
    groups = Path("run/groups.jsonl").read_text().splitlines()
    assert len(groups) == len({json.loads(line)["group_id"] for line in groups}) == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*MIX, "--adaptive"), "train has groups of one size"),
        (("--data", "x.jsonl", "--reward", "exact_match", "--curriculum", "level"), "chooses among the tasks of an"),
        ((*MIX, "--curriculum", "nokey"), "no task has 'nokey' in its info"),
    ],
)
def test_what_does_not_go_together(train: Callable[..., Any], arguments: tuple[str, ...], message: str) -> None:
    got = train(*arguments)
    assert got.code == 2
    assert message in got.stderr
