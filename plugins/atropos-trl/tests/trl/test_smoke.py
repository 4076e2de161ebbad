"""Two real optimiser steps of the small real model, from the command line, within CI's budget of CPU time."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from trl_support import metrics

pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("gguf")


@pytest.mark.slow
@pytest.mark.model
def test_two_steps(tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "atropos_cli", "train", "grpo", "--env", "arithmetic", "--env.kind", "add"),
        *("--env.prompt-style", "plain", "--model", "smollm2", "--backend.chat-template", "plain"),
        *("--group-size", "2", "--prompts-per-step", "1", "--max-tokens", "4", "--steps", "2", "--save-every", "2"),
        *("--algorithm", "dr_grpo", "--learning-rate", "1e-5", "--allow-constant-reward"),
        *("--output", str(tmp_path / "run")),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # once without steps, so that the model's dequantised copy is there: making it is not part of the budget
    subprocess.run([*command, "--dry-run"], check=True, env=environment, stdout=subprocess.DEVNULL)
    from atropos_trl.common import models

    models.load_tokenizer("smollm2")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1, 2]
    assert (tmp_path / "run" / "model" / "model.safetensors").stat().st_size > 500_000_000
    assert after.ru_utime - before.ru_utime < 30
