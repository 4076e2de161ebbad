"""The names of the environment's variables stay as they are while a thread samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from atropos_authoring import tiny_model
from atropos_authoring.trainers import DIGITS

pytest.importorskip("trl")
pytestmark = pytest.mark.model

WATCH = """
import os, sys, threading

log = os.open(os.environ["WATCHED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def hook(event, values):
    if event not in ("os.putenv", "os.unsetenv"):
        return
    name = os.fsdecode(values[0])
    sampling = any(thread.name == "atropos-local" for thread in threading.enumerate())
    if sampling and not (event == "os.putenv" and name in os.environ):
        os.write(log, f"{event} {name}\\n".encode())
    elif not sampling:
        os.write(log, b"before\\n")


sys.addaudithook(hook)
"""


def test_no_variable_is_added_or_removed_while_a_thread_samples(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    settings = {
        "model": str(tiny_model(tmp_path / "model")),
        "group_size": 2,
        "sampling": {"max_tokens": 2},
        "backend_options": {"chat_template": "plain"},
        "train": {"env": DIGITS, "trainer": "trl", "steps": 1, "prompts_per_step": 1},
    }
    (tmp_path / "run.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "atropos_cli", "train", "grpo", "--config", str(tmp_path / "run.json")]
    env = {key: value for key, value in os.environ.items() if key != "PYTORCH_NVML_BASED_CUDA_CHECK"}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path), "WATCHED": str(tmp_path / "log")}
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "run")], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert set((tmp_path / "log").read_text().splitlines()) == {"before"}
