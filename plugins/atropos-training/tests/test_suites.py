"""Suites of a training run: rollouts that fail, names that files cannot have, the best step after a resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import tiny_model
from atropos_training.suites import SuiteResults

TRAINER = f"{Path(__file__).with_name('stub_trainer.py')}:Stub"

ENVIRONMENTS = """
from atropos_cli.sdk import Config, Environment, Field, Task, TaskStream, reward, user


class Settings(Config):
    broken: int = Field(default=0, description="Tasks whose reward breaks.")
    endless: bool = Field(default=False, description="Tasks without end.")


@reward
def whole(task, rollout):
    \"\"\"Breaks where the task says so.\"\"\"
    return 1 / task.answer


class Letters(Environment):
    \"\"\"Four tasks, or tasks without end.\"\"\"
    name = "some-letters"
    Config = Settings
    rewards = (whole,)
    splits = ("train", "test")

    def tasks(self, split):
        def make(n):
            return Task(id=f"{split}-{n}", prompt=(user(f"{n}"),), answer=int(n >= self.config.broken))
        if split == "train" and self.config.endless:
            return TaskStream(make)
        return [make(n) for n in range(8 if split == "train" else 4)]


class letters(Letters):
    \"\"\"The same.\"\"\"
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small random model with a byte tokenizer."""
    return str(tiny_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def train(cli: Callable[..., Any], model: str) -> Callable[..., Any]:
    """train(*arguments): grpo on ./env.py:Letters with the stub trainer, into `run`."""
    Path("env.py").write_text(ENVIRONMENTS)
    sizes = {"--steps": "1", "--prompts-per-step": "2", "--group-size": "2", "--max-tokens": "2"}
    words = ("--trainer", TRAINER, "--model", model, "--backend.chat-template", "plain", "-o", "run")

    def call(*arguments: str) -> Any:
        usual = [word for pair in sizes.items() if pair[0] not in arguments for word in pair]
        return cli("train", "grpo", "--env", "./env.py:Letters", *words, *usual, *arguments)

    return call


def test_failed_rollouts_of_a_suite_are_counted_and_told_once(train: Callable[..., Any]) -> None:
    result = train("--eval", "./env.py:Letters:broken=1")
    assert result.code == 0, result.stderr
    told = "evaluation 'letters': 1 of 4 rollouts failed at step 0; they count as wrong. Most often: "
    assert told + "score:ZeroDivisionError (1): reward whole: division by zero" in result.stderr
    assert result.stderr.count("they count as wrong") == 1
    assert result.stderr.count("letters/errors 1") == 2
    kept = json.loads(Path("run/evals/letters-step-0.json").read_text())
    assert (kept["errors"], kept["failures"]) == (1, {"score:ZeroDivisionError": 1})
    assert json.loads(Path("run/evals/letters-step-1.json").read_text())["failures"]


def test_a_suite_in_which_nothing_works_ends_the_run_before_it_trains(train: Callable[..., Any]) -> None:
    result = train("--eval", "./env.py:Letters:broken=9")
    assert result.code == 3
    assert "4 of 4 rollouts failed before training" in result.stderr
    assert "score:ZeroDivisionError (4): reward whole: division by zero" in result.stderr
    assert "--eval letters" in result.stderr
    again = train("--eval", "./env.py:Letters")
    assert again.code == 0, again.stderr  # nothing was done that would be in the way


def test_a_file_is_called_by_its_class_and_never_by_its_path(train: Callable[..., Any]) -> None:
    assert train("--eval", "./env.py:Letters").code == 0
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert {name.rpartition("/")[0] for name in rows[0] if name.startswith("eval/")} == {"eval/letters"}
    clash = train("--eval", "./env.py:Letters", "--eval", "./env.py:letters", "--dry-run")
    assert clash.code == 2
    assert "two suites are called 'letters'" in clash.stderr
    assert "LABEL=" in clash.stderr
    alike = train("--eval", "a b=./env.py:Letters", "--eval", "a/b=./env.py:letters", "--dry-run")
    assert alike.code == 2
    assert "'a b' and 'a/b' differ in signs" in alike.stderr
    assert train("--eval", "./env.py:Letters", "--eval", "other=./env.py:letters", "--dry-run").code == 0


def test_an_endless_stream_says_when_it_passes_over_a_task_and_how_often(train: Callable[..., Any]) -> None:
    result = train("--env.endless", "--eval", "./env.py:Letters", "--steps", "2")
    assert result.code == 0, result.stderr
    assert result.stderr.count("a training task is also a task of an evaluation: such tasks are left out") == 1
    assert result.stderr.count("4 training tasks were also tasks of an evaluation: they were left out") == 1
    log = [json.loads(line) for line in Path("run/log.jsonl").read_text().splitlines()]
    assert log[-1]["event"] == "ended"
    groups = [json.loads(line)["task"]["id"] for line in Path("run/groups.jsonl").read_text().splitlines()]
    assert groups == ["train-4", "train-5", "train-6", "train-7"]


def test_the_samples_of_a_step_are_of_all_its_groups(train: Callable[..., Any]) -> None:
    arguments = ("--prompts-per-step", "6", "--group-size", "4", "--eval", "./env.py:Letters")
    assert train(*arguments).code == 0
    rows = [json.loads(line) for line in Path("run/samples.jsonl").read_text().splitlines()]
    shown = [row["prompt"] for row in rows if "suite" not in row]
    assert len(shown) == 8
    trained = [json.loads(line)["task"]["id"] for line in Path("run/groups.jsonl").read_text().splitlines()]
    tasks = [name.removeprefix("train-") for name in trained]
    assert shown == [tasks[place * 24 // 8 // 4] for place in range(8)]


def test_the_best_step_is_known_again_whatever_the_suite_is_called(tmp_path: Path) -> None:
    name = "./some folder/env.py:Letters"
    kept = tmp_path / "evals"
    kept.mkdir()
    for step, accuracy in ((0, 0.1), (5, 0.9), (10, 0.5)):
        (kept / f"._some_folder_env.py_Letters-step-{step}.json").write_text(json.dumps(evaluation(accuracy)))
    results = SuiteResults(tmp_path, [name])
    results.recover(10)
    assert results.best_step == 5
    assert results.history[5][f"eval/{name}/accuracy"] == 0.9


def evaluation(accuracy: float) -> dict[str, Any]:
    return {
        "environment": "e", "environment_config": {}, "split": "test", "model": "m", "plan_digest": "d",
        "atropos_version": "0", "sampling": {}, "seed": 0, "samples": 1, "success_rule": "r",
        "errors_count_as": "wrong", "tasks": 1, "rollouts": 1, "scored": 1, "errors": 0,
        "accuracy": {"value": accuracy, "tasks": 1}, "reward": None, "per_task": [],
    }  # fmt: skip
