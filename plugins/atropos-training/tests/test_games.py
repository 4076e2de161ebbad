"""Games while training: a rollout for each side, averages by role that a resumed training keeps, frozen opponents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import tiny_model

STUB = f"{Path(__file__).with_name('stub_trainer.py')}:Stub"
ENVIRONMENT = """
from atropos_cli.sdk import Game, GameEnvironment, Task, reward, user


@reward
def outcome(task, rollout):
    return 1.0 if rollout.role == "first" else -1.0


class Duel(Game):
    players = ("first", "second")
    moves = 0

    def reset(self):
        return {"first": [user("go")], "second": [user("wait")]}

    def turn(self):
        return self.players[self.moves]

    def step(self, player, reply):
        self.moves += 1
        return None if self.moves == 2 else {"second": [user("go")]}


class Duels(GameEnvironment):
    name = "duels"
    rewards = (outcome,)

    def tasks(self, split):
        return [Task(id=str(n)) for n in range(20)]

    def game(self, task):
        return Duel()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small random model with a byte tokenizer."""
    return str(tiny_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def train(cli: Callable[..., Any], model: str) -> Callable[..., Any]:
    """train(*arguments): grpo on duels with the stub trainer, into `run`."""
    Path("duels.py").write_text(ENVIRONMENT)
    sizes = ("--steps", "2", "--prompts-per-step", "2", "--group-size", "2", "--max-tokens", "2", "--advantage", "rae")
    words = ("--trainer", STUB, "--model", model, "--backend.chat-template", "plain", "-o", "run", *sizes)
    begin = ("--trainer.begin-file", str(Path("begin").resolve()))
    return lambda *arguments: cli("train", "grpo", "--env", "./duels.py:Duels", *words, *begin, *arguments)


def groups() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("run/groups.jsonl").read_text().splitlines()]


def averages() -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in Path("run/baselines.jsonl").read_text().splitlines()]
    return [(line["step"], line["values"]["duels/first"]) for line in lines]


def test_a_resumed_training_continues_with_the_averages_of_its_checkpoint(train: Callable[..., Any]) -> None:
    result = train()
    assert result.code == 0, result.stderr
    sides = [pair for group in groups() for pair in zip(group["rollouts"], group["advantages"], strict=True)]
    first = sorted((value for side, value in sides if side["role"] == "first"), reverse=True)
    second = sorted(value for side, value in sides if side["role"] == "second")
    # who always wins has an average that nears 1 by a twentieth of the distance each time
    assert first == pytest.approx([0.95**count for count in range(8)])
    assert second == pytest.approx([-(0.95**count) for count in range(8)])
    whole = averages()
    assert whole == [(0, pytest.approx(1 - 0.95**4)), (1, pytest.approx(1 - 0.95**8))]
    Path("begin").write_text("1")
    resumed = train("--resume")
    assert resumed.code == 0, resumed.stderr
    assert averages() == [*whole, whole[1]]
    assert len(groups()) == 4


def test_a_frozen_opponent_is_not_trained(train: Callable[..., Any]) -> None:
    opponent = ("--role.second.backend", "scripted", "--role.second.backend-options", '{"replies": ["x"]}')
    result = train(*opponent)
    assert result.code == 0, result.stderr
    assert {side["role"] for group in groups() for side in group["rollouts"]} == {"first"}
