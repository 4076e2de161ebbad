"""A run with a program in the place of SkyRL: what it is given, and what comes back into the run folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_skyrl.running import SkyrlRunning
from in_process import Result
from package_trainer import feigned

from atropos_cli.distributed import trainer

MAIN = Path(__file__).with_name("plain_main.py")
COMMON = ("train", "grpo", "--trainer", "skyrl")


@pytest.fixture
def train(cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """train("--steps", 2) with a GPU, and an installed SkyRL that takes all settings, feigned."""
    return feigned(cli, monkeypatch, tmp_path, SkyrlRunning, MAIN, "0.4.0")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("step", [2, 3])
def test_a_run_that_breaks_off_and_is_resumed(train: Callable[..., Result], tmp_path: Path, step: int) -> None:
    run = tmp_path / "run"
    words = ("--steps", 3, "--prompts-per-step", 2, "--group-size", 2, "--save-every", 1)
    words = (*words, "--eval", "arithmetic_eval:limit=2")
    (tmp_path / "script").write_text(f"die {step}")
    broken = train(*words)
    assert broken.code == 8
    assert f"skyrl ended with code 7 after step {step - 1} of 3" in broken.stderr
    assert "--resume" in broken.stderr
    ended = train(*words, "--resume")
    assert ended.code == 0, ended.stderr

    metrics = lines(run / "metrics.jsonl")
    assert [row["step"] for row in metrics if "loss" in row] == [one for one in (1, 2, 3) if one != step]
    assert all("skyrl/trainer/epoch" not in row for row in metrics)
    assert next(row for row in metrics if "loss" in row)["skyrl/timing/generate"] == 2.0
    evaluated = [row["step"] for row in metrics if "eval/arithmetic_eval/accuracy" in row]
    assert evaluated[0] == 0
    groups = lines(run / "groups.jsonl")
    assert all(len(group["rollouts"]) == 2 for group in groups)
    spans = [m["tokens"] for g in groups for r in g["rollouts"] for m in r["messages"] if m["role"] == "assistant"]
    assert all(span["logprobs"][-1] == -0.5 for span in spans)
    assert (run / "model" / "model.safetensors").read_text() == "3"
    assert "step-3" in [path.name for path in (run / "checkpoints").iterdir()]
    # SkyRL's copies of older weights are gone.
    assert [path.name for path in (run / "skyrl" / "exports").glob("global_step_*")] == ["global_step_3"]
    assert json.loads((run / "train.json").read_text())["state"] == "finished"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--overrides", "trainer.epochs=2"), "--overrides trainer.epochs: set by atropos"),
        (("--overrides", "+trainer.epochs=2"), "--overrides trainer.epochs: set by atropos"),
        (("--overrides", "trainer={epochs: 2}"), "--overrides trainer: set by atropos"),
        (("--overrides", "data.train_data[0]=x"), "--overrides data.train_data[0]: set by atropos"),
        (("--overrides", "lr"), "'lr': not KEY=VALUE"),
        (("--engine", "sglang"), "SkyRL samples with vLLM alone"),
        (("--python", "/nowhere"), "no Python at /nowhere"),
        (("--processes", 2), "starts the processes of its GPUs itself"),
        (("--stop", "x"), "--stop cannot be passed"),
        (("--temperature", 0), "all rollouts of a group would be the same"),
        (("--tensor-parallel", 3), "--tensor-parallel 3 does not divide 1 GPUs"),
        (("--env", "games", "--env.game", "kuhn"), "makes groups of its own"),
        (("--gpus", 4), "--gpus 4, and this node has 1"),
        (("--run-name", "${oc.env:HOME}"), "would read a variable"),
        (("--eval", "arithmetic:samples=2", "--eval", "arithmetic_eval:samples=1"), "evaluates all suites alike"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(
    train: Callable[..., Result], tmp_path: Path, words: tuple[Any, ...], said: str
) -> None:
    ended = train("--steps", 1, *words)
    assert ended.code in (2, 3), ended.stderr
    assert said in ended.stderr
    assert not (tmp_path / "run" / "skyrl" / "skyrl.log").exists()


def test_a_machine_without_gpus(train: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "gpus_here", lambda: 0)
    ended = train("--steps", 1)
    assert ended.code == 3
    assert "none here" in ended.stderr
    shown = train("--steps", 1, "--min-p", 0.05, "--dry-run", "--json")
    assert shown.code == 0, shown.stderr
    derived = json.loads(shown.stdout)["derived"]
    assert derived["gpus"] == 8
    assert "generator.sampling_params.min_p=0.05" in derived["overrides"]


def test_a_job_on_several_nodes(
    train: Callable[..., Result], cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One process of the engine on each node; SkyRL starts those of the GPUs."""
    monkeypatch.setattr(trainer, "gpus_here", lambda: 0)
    submit = ("slurm", "submit", "--nodes", 2, "--gpus-per-node", 8, "--dry-run")
    shown = cli(*submit, *COMMON, "--model", tmp_path / "model", "-o", tmp_path / "run", "--steps", 1)
    assert shown.code == 0, shown.stderr
    assert "--processes" not in shown.stderr
    assert "#SBATCH --gpus-per-node=8" in shown.stdout
    assert shown.stdout.count('"NNODES": "2"') == 2
    assert '"--processes"' not in shown.stdout


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ('print("x")\nprint(\'atropos-answer {"error": "no such key"}\')', "skyrl refuses the settings: no such key"),
        ("import skyrl_that_is_missing", "lacks a package of skyrl"),
        ("raise SystemExit('odd')", "cannot check the settings of skyrl: odd"),
    ],
)
def test_what_its_own_python_says(
    train: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, shown: str
) -> None:
    from atropos_skyrl.trainer import SkyrlTrainer

    from atropos_cli.distributed.pythons import ask

    (tmp_path / "check.py").write_text(said)
    monkeypatch.setattr(SkyrlTrainer, "inside", tmp_path)
    monkeypatch.setattr(trainer, "ask", ask)
    ended = train("--steps", 1, "--dry-run")
    assert ended.code == 3, ended.stderr
    assert shown in ended.stderr
