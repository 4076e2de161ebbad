"""`atropos train lerobot` around LeRobot's process, with a loop of ours in LeRobot's place: records, stops, resumes.

That LeRobot itself is driven so is shown in test_real.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_lerobot import place

Cli = Callable[..., Any]
Made = Callable[..., Path]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our loop is what runs."""
    monkeypatch.setattr(place, "SIDE", Path(__file__).with_name("loop.py"))
    monkeypatch.setattr(place, "installed_release", lambda python: "0.6.1")


@pytest.fixture
def words(made: Made, tmp_path: Path) -> tuple[Any, ...]:
    """A command that trains six steps into tmp_path / "run"."""
    return (
        "train", "lerobot", "--dataset", made(), "--lerobot", sys.executable, "--steps", "6", "--save-every", "2",
        "-o", tmp_path / "run",
    )  # fmt: skip


def steps_in(run: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def kept(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.mark.usefixtures("loop")
def test_a_whole_training(cli: Cli, words: tuple[Any, ...], tmp_path: Path) -> None:
    done = cli(*words)
    run = tmp_path / "run"
    assert done.code == 0, done.stderr
    assert "loss" in done.stderr
    assert steps_in(run) == [1, 2, 3, 4, 5, 6]
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["loss"], last["learning_rate"], last["step_time"], last["data_time"]) == (1 / 6, 0.1, 2.5, 0.5)
    assert "name" not in last
    assert kept(run) == ["step-4", "step-6"]
    assert (run / "model" / "model.safetensors").read_bytes() == b"w" * 6
    assert not (run / "lerobot").exists()
    assert "words for the log" in (run / "lerobot.log").read_text()
    state = json.loads((run / "train.json").read_text())
    assert (state["state"], state["steps"], state["method"]) == ("finished", 6, "lerobot")
    assert cli(*words, "--resume").code == 0  # nothing is left to do
    assert f"its curves are in {run}/curves.html" in cli("analyze", run).stderr
    assert "loss" in (run / "curves.html").read_text()
    assert "lerobot on set" in cli("runs", tmp_path).stdout


@pytest.mark.usefixtures("loop")
def test_the_plan_and_the_command_are_shown(cli: Cli, words: tuple[Any, ...], tmp_path: Path) -> None:
    shown = cli(*words, "--dry-run", "--json").json
    assert (shown["learns"], shown["model"], shown["trainer"]["name"]) == ("own", "", "lerobot")
    derived = shown["derived"]
    assert derived["command"][0] == "lerobot-train"
    assert f"--dataset.root={tmp_path / 'set'}" in derived["command"]
    assert (derived["gpus"], derived["cameras"]) == ("none on this machine", ["observation.images.front"])
    assert not (tmp_path / "run").exists()
    once = cli("train", "groot", *words[2:6], "--dry-run", "--json").json["derived"]
    assert (once["steps"], once["batch_size"]) == (2, 32)
    assert "2 steps are once over 60 frames; --steps N for more" in once["notes"]


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("error 3", "LeRobot failed after step 2: OutOfMemoryError: CUDA out of memory"),
        ("die 3", "was ended by signal 9; it printed last: words for the log\nthe last words"),
    ],
)
def test_a_process_that_fails(
    cli: Cli, words: tuple[Any, ...], tmp_path: Path, mode: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOP_MODE", mode)
    done = cli(*words)
    assert (done.code, told in done.stderr) == (8, True), done.stderr
    assert "step-2 is saved, --resume continues from it" in done.stderr
    monkeypatch.setenv("LOOP_MODE", "noise 4")
    again = cli(*words, "--resume")
    assert again.code == 0, again.stderr
    assert steps_in(tmp_path / "run") == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("loop")
def test_one_that_is_stopped_saves_and_is_resumed(
    cli: Cli, words: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOP_MODE", "slow 3")
    run = tmp_path / "run"

    def stop() -> None:
        for _ in range(1200):
            if (run / "slow").exists():
                break
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    done = cli(*words)
    thread.join()
    assert (done.code, "interrupted after step 3" in done.stderr) == (130, True), done.stderr
    assert kept(run) == ["step-2", "step-3"]
    monkeypatch.delenv("LOOP_MODE")
    assert cli(*words, "--resume").code == 0
    assert steps_in(run) == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("loop")
def test_one_that_ended_before_its_first_checkpoint_starts_again(
    cli: Cli, words: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOP_MODE", "error 2")
    assert cli(*words).code == 8
    monkeypatch.delenv("LOOP_MODE")
    done = cli(*words, "--resume")
    assert (done.code, "starts from its beginning" in done.stderr) == (0, True), done.stderr
    assert steps_in(tmp_path / "run") == [1, 2, 3, 4, 5, 6]


@pytest.mark.usefixtures("loop")
def test_other_data_than_before(
    cli: Cli, words: tuple[Any, ...], made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOP_MODE", "error 5")
    assert cli(*words).code == 8
    monkeypatch.delenv("LOOP_MODE")
    made(total_frames=90, total_episodes=3)
    done = cli(*words, "--resume")
    assert (done.code, "the dataset has changed" in done.stderr) == (6, True), done.stderr
    done = cli(*words, "--resume", "--accept-changed-data")
    assert (done.code, "warning: the dataset has changed" in done.stderr) == (0, True), done.stderr


@pytest.mark.usefixtures("loop")
def test_a_damaged_checkpoint(
    cli: Cli, words: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOP_MODE", "error 5")
    cli(*words)
    state = tmp_path / "run" / "checkpoints" / "step-4" / "training_state" / "training_step.json"
    state.write_text("{")
    done = cli(*words, "--resume")
    assert (done.code, "step-4 is damaged" in done.stderr) == (6, True), done.stderr


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize(
    ("answer", "told", "code"),
    [
        ({"refused": ["no such field"], "at": "arguments"}, "LeRobot 0.6.1 refuses its arguments: no such field", 3),
        ({"refused": ["bad shape"], "at": "dataset"}, "refuses the dataset: bad shape", 6),
        ({"lacks": ["update_policy"]}, "has no update_policy in its training loop", 3),
        ({"broken": ["No module named 'torch'"]}, "LeRobot cannot be imported: No module named 'torch'", 4),
    ],
)
def test_what_lerobot_refuses(
    cli: Cli, words: tuple[Any, ...], answer: Any, told: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOP_ANSWER", json.dumps(answer))
    done = cli(*words, "--dry-run")
    assert (done.code, told in done.stderr) == (code, True), done.stderr


@pytest.mark.usefixtures("loop")
def test_groot_needs_a_gpu(cli: Cli, words: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    groot = ("train", "groot", *words[2:])
    assert cli(*groot, "--dry-run").code == 0
    done = cli(*groot)
    assert (done.code, "GR00T trains on a CUDA GPU" in done.stderr) == (3, True), done.stderr
    monkeypatch.setenv("LOOP_DEVICE", "cuda")
    gpu = {"name": "A", "free": 8 * 1024**3, "total": 16 * 1024**3}
    monkeypatch.setenv("LOOP_ANSWER", json.dumps({"devices": [gpu]}))
    done = cli(*groot)
    assert "takes about 24 GB of GPU memory, and 8.0 GB are free" in done.stderr
    assert "N1.5, and LeRobot 0.6.1 has N1.7 alone" in cli(*groot, "--model", "nvidia/GR00T-N1.5-3B").stderr
    monkeypatch.setattr(place, "installed_release", lambda python: "0.5.1")
    assert "N1.7, and LeRobot 0.5.1 has N1.5 alone" in cli(*groot, "--model", "nvidia/GR00T-N1.7-3B").stderr
    assert "needs flash-attn" in cli(*groot).stderr
