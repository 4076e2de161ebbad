"""An opponent that is an earlier policy: renewed every N steps, the same again after an interruption."""

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
import torch
from test_live import atropos, metrics

pytest.importorskip("atropos_local")

ENVIRONMENT = '''
from atropos_cli.sdk import Game, GameEnvironment, Task, reward, user


@reward
def even(task, rollout):
    """Share of even digits in the first player's reply; the second one's is only kept."""
    return sum(letter in "02468" for letter in rollout.text) / 8


class Duel(Game):
    players = ("first", "second")

    def __init__(self, task):
        self.task, self.moves, self.other = task, 0, ""

    def reset(self):
        return {"first": [user("AB")], "second": [user(self.task.id)]}

    def turn(self):
        return self.players[self.moves]

    def step(self, player, reply):
        self.moves += 1
        if player == "second":
            self.other = reply.text
        return None if self.moves == 2 else {}

    def result(self, player):
        return {"other": self.other}


class Duels(GameEnvironment):
    name = "duels"
    rewards = (even,)

    def tasks(self, split):
        return [Task(id=a + b) for a in "ABCDEFG" for b in "ABCDEFG"]

    def game(self, task):
        return Duel(task)
'''


def words(tiny: Path, output: str, *, every: int = 4) -> list[str]:
    given: dict[str, Any] = {
        "model": tiny,
        "env": "./duels.py:Duels",
        "trainer": "native",
        "learning_rate": 0.02,
        "prompts_per_step": 2,
        "group_size": 4,
        "max_tokens": 8,
        "steps": 8,
        "save_every": 2,
        "keep_checkpoints": 10,
        "output": output,
        "role.second.refresh": every,
        "role.second.temperature": 0,
    }
    return [
        "train",
        "grpo",
        *(word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", str(value))),
    ]


def replies(run: Path) -> dict[str, set[str]]:
    """What the opponent said, by the place of the group."""
    groups = [json.loads(line) for line in (run / "groups.jsonl").read_text().splitlines()]
    assert {one["role"] for group in groups for one in group["rollouts"]} == {"first"}
    return {group["group_id"]: {one["info"]["other"] for one in group["rollouts"]} for group in groups}


def test_it_is_renewed_on_time_and_the_same_after_an_interruption(tiny: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    (tmp_path / "duels.py").write_text(ENVIRONMENT)
    whole = atropos(*words(tiny, "whole"), cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    for period in (0, 1):
        kept = torch.load(tmp_path / "whole" / "frozen" / "every-4" / f"{period}.pt", weights_only=True)
        assert kept["step"] == 4 * period
        if period:
            saved = load_file(tmp_path / "whole" / "checkpoints" / f"step-{4 * period}" / "model.safetensors")
            assert all(torch.equal(kept["weights"][name], tensor) for name, tensor in saved.items())
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "atropos_cli", *words(tiny, "cut")]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    path, until = tmp_path / "cut" / "metrics.jsonl", time.monotonic() + 180
    while not path.exists() or path.read_text().count("\n") < 6:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = atropos(*words(tiny, "cut"), "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "resumed from step" in again.stderr
    for row, other in zip(metrics(tmp_path / "cut"), metrics(tmp_path / "whole"), strict=True):
        assert (row["step"], row["loss"]) == (other["step"], pytest.approx(other["loss"], rel=1e-5, abs=1e-8))
    assert replies(tmp_path / "cut") == replies(tmp_path / "whole")
