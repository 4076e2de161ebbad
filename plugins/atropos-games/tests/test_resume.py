"""Self-play training that is killed continues with the averages of its checkpoint, as if nothing had happened."""

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
from atropos_authoring import tiny_model

pytest.importorskip("atropos_local")
pytest.importorskip("atropos_trl")
pytest.importorskip("atropos_training")
pytestmark = pytest.mark.slow

STEPS = 10
FLAGS = {
    "env": "games",
    "env.game": "tictactoe",
    "prompt": "line.toml",
    "advantage": "rae",
    "trainer": "native",
    "advantages": "own",
    "model": "tiny",
    "backend.chat-template": "plain",
    "learning-rate": "0.01",
    "prompts-per-step": "2",
    "group-size": "2",
    "max-tokens": "1",
    "steps": str(STEPS),
    "save-every": "2",
}


def words(output: str, *more: str) -> list[str]:
    flags = [word for name, value in FLAGS.items() for word in (f"--{name}", value)]
    return [sys.executable, "-m", "atropos_cli", "train", "grpo", *flags, "--output", output, *more]


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_killed_training_continues_with_its_averages(tmp_path: Path) -> None:
    tiny_model(tmp_path / "tiny")
    (tmp_path / "line.toml").write_text('system = ""\nturn = "{{ line }}"\n')
    env = {**os.environ, "OMP_NUM_THREADS": "1"}

    def run(*command: str) -> None:
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr

    run(*words("whole"))
    whole = {line["step"]: line["values"] for line in lines(tmp_path / "whole" / "baselines.jsonl")}
    assert len(whole) == STEPS
    assert set(whole[STEPS - 1]) == {"tictactoe/first", "tictactoe/second"}
    assert any(whole[STEPS - 1].values())
    process = subprocess.Popen(words("cut"), cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    metrics, until = tmp_path / "cut" / "metrics.jsonl", time.monotonic() + 240
    while not metrics.exists() or metrics.read_text().count("\n") < 5:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.stderr:
        process.stderr.close()
    written = len(lines(tmp_path / "cut" / "baselines.jsonl"))
    assert written < STEPS
    run(*words("cut", "--resume"))
    kept = lines(tmp_path / "cut" / "baselines.jsonl")
    assert kept[written]["step"] > 1, "the resumed training started over"
    for line in kept:
        assert line["values"] == pytest.approx(whole[line["step"]])
    both = (lines(tmp_path / name / "groups.jsonl") for name in ("cut", "whole"))
    cut, all_of_it = ({group["group_id"]: group["advantages"] for group in groups} for groups in both)
    assert cut == {name: pytest.approx(values) for name, values in all_of_it.items()}
