"""SIGTERM in the middle of a real evaluation: both trainers end within seconds, and the run goes on with it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from atropos_authoring.trainers import tiny_model

from atropos_cli.cli.app import run

pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("atropos_local")

ENVIRONMENT = """
import asyncio
from pathlib import Path
from atropos_cli.sdk import Episode
from atropos_authoring.digits import Digits

HERE = Path(__file__).parent


class Slow(Digits):
    name = "slow"
    splits = ("train", "test")

    def episode(self, task):
        return Waiting(task)


class Waiting(Episode):
    def __init__(self, task):
        self.task = task

    async def reset(self):
        if not (HERE / "fast").exists():
            (HERE / "begun").touch()
            await asyncio.sleep(300)
        return list(self.task.prompt)

    async def step(self, reply):
        return None
"""


def _stop_when(path: Path) -> None:
    def wait() -> None:
        while not path.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize("trainer", ["trl", "native"])
def test_an_evaluation_is_broken_off_and_made_again(
    trainer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow.py").write_text(ENVIRONMENT)
    model = tiny_model(tmp_path / "model")
    words = (
        *("train", "grpo", "--trainer", trainer, "--env", "./slow.py:Slow", "--model", str(model), "--output", "run"),
        *("--backend.chat-template", "plain", "--max-tokens", "4", "--group-size", "2", "--prompts-per-step", "2"),
        *("--steps", "1", "--eval", "slow=./slow.py:Slow:limit=3,split=test", "--allow-constant-reward"),
    )
    _stop_when(tmp_path / "begun")
    began = time.monotonic()
    assert run(words) == 130
    assert time.monotonic() - began < 100
    assert "evaluation 'slow' is broken off" in capsys.readouterr().err
    assert not list(Path("run/evals").glob("*"))
    (tmp_path / "fast").touch()
    assert run([*words, "--resume"]) == 0
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["step"]) for row in rows] == [("eval", 0), ("train", 1), ("eval", 1)]
