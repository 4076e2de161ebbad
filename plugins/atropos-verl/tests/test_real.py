"""With the real verl, in a Python of its own: its settings, its data set, its agent loop. Only what needs GPUs is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from in_process import Result

MAIN = Path(__file__).with_name("verl_main.py")
TOOL = '<tool_call>{"name": "calculate", "arguments": {"expression": "1+2"}}</tool_call>'


@pytest.fixture
def train(
    verl_python: str, model: Path, cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """train(["look"], "--env", ...) -> what `train grpo --trainer verl` did, with a machine of one GPU feigned."""
    from atropos_verl import running, trainer

    monkeypatch.setattr(trainer, "gpus_here", lambda: 1)
    monkeypatch.setattr(trainer.VerlTrainer, "_check_machine", lambda self, found: None)
    monkeypatch.setattr(running, "MAIN", (str(MAIN),))
    monkeypatch.setenv("CHECKED", str(tmp_path / "checked.json"))

    def made(replies: list[str], *words: Any) -> Result:
        monkeypatch.setenv("REPLIES", json.dumps(replies))
        return cli(
            "train", "grpo", "--trainer", "verl", "--model", model, "--python", verl_python, "--env-workers", 1,
            "--max-prompt-length", 6000, "--max-response-length", 2000, "-o", tmp_path / "run", *words,
        )  # fmt: skip

    return made


def checked(tmp_path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((tmp_path / "checked.json").read_text())
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_ten_episodes_of_a_text_game(train: Callable[..., Result], tmp_path: Path) -> None:
    ended = train(
        ["look", "go east", "inventory"], "--env", "textworld", "--env.max-steps", 3, "--steps", 1,
        "--prompts-per-step", 5, "--group-size", 2,
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    (step,) = checked(tmp_path)
    assert step["rows"] == 10
    assert step["turns"] == [3] * 10
