"""The examples run as their README says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(script: Path, *args: str, **variables: str) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", str(script), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        env={**os.environ, "PATH": path, **variables},
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_custom_environment(tmp_path: Path) -> None:
    output = run(EXAMPLES / "custom-environment" / "run.sh", str(tmp_path / "run"))
    assert "result: ok, 20 tasks" in output
    groups = [json.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_text().splitlines()]
    assert len(groups) == 20
    assert all(rollout["info"]["found"] for group in groups for rollout in group["rollouts"])
    # the player's luck differs between rollouts of a group, so there is something to learn from
    assert any(value for group in groups for value in group["advantages"])


@pytest.mark.slow
@pytest.mark.model
def test_first_rollouts(tmp_path: Path) -> None:
    """Real play of a real model. The example sets up its own environment: here it is the one the tests run in."""
    here = Path(sys.prefix)
    if not (here / ".setup-stamp").exists():
        pytest.skip("the tests do not run in an environment made by .ci/setup")
    for needed in ("torch", "transformers", "gguf", "textworld", "trl"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    # Fewer turns and steps than a reader gets: enough for rewards that differ and for an accuracy that climbs by half.
    shorter = {"TURNS": "5", "STEPS": "6"}
    script = EXAMPLES / "first-rollouts" / "run.sh"
    output = run(script, str(tmp_path / "run"), ATROPOS_TEST_VENV=str(here), **shorter)
    assert "The best rollout" in output
    assert " model | " in output
    assert "  game | " in output
    groups = [json.loads(line) for line in (tmp_path / "run" / "play" / "groups.jsonl").read_text().splitlines()]
    assert len(groups) == 4
    rewards = [[rollout["reward"] for rollout in group["rollouts"]] for group in groups]
    assert 0 < sum(map(sum, rewards)) / 16 < 1
    spread = sum(len(set(group)) > 1 for group in rewards)
    assert spread >= len(groups) / 2  # 3 of 4 as a rule; sampling may turn on how rows meet in a batch
    assert f"in {spread} of 4 groups the rewards differ" in output
    for group in groups:
        for rollout in group["rollouts"]:
            assert rollout["metrics"]["invalid_commands"] == 0
            replies = [message for message in rollout["messages"] if message["role"] == "assistant"]
            assert [reply["content"] for reply in replies] == rollout["info"]["commands"]
            for reply in replies:
                span = reply["tokens"]
                assert len(span["ids"]) == len(span["logprobs"]) == len(span["mask"]) > 0
                assert any(span["mask"])  # the model chose something
                assert max(span["logprobs"]) <= 0.0
    learnt = re.search(r"Learnt: accuracy ([0-9.]+) -> ([0-9.]+) in 6 steps", output)
    assert learnt
    before, after = map(float, learnt.groups())
    assert after >= before + 0.2
    assert (tmp_path / "run" / "train" / "curves.html").exists()
    assert f"atropos view {tmp_path / 'run' / 'play'}" in output


@pytest.mark.slow
@pytest.mark.model
def test_train_on_rollouts(tmp_path: Path) -> None:
    """Sampling, filtering, rows, training and both evaluations with the real model: about 80 CPU seconds."""
    for needed in ("torch", "transformers", "gguf", "trl", "atropos_arithmetic", "atropos_local", "atropos_trl"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    output = run(EXAMPLES / "train-on-rollouts" / "run.sh", str(tmp_path / "run"))
    assert "step 8/8: loss" in output
    before, after = (float(line.split()[1]) for line in output.splitlines() if line.startswith("accuracy "))
    assert after > before


def test_every_example_has_a_readme_and_is_run_here() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    source = Path(__file__).read_text()
    assert {"custom-environment", "first-rollouts", "train-on-rollouts"} <= names
    for name in names:
        assert (EXAMPLES / name / "README.md").exists()
        assert f'"{name}"' in source


def test_slurm_b200(tmp_path: Path) -> None:
    """The dry run checks every option, of gen too, and needs no cluster and no GPU."""
    # without sbatch: the partition of the example is on no cluster here
    (tmp_path / "bin").mkdir()
    for name in ("bash", "env", "dirname", "uname"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)
    (tmp_path / "bin" / "atropos").write_text(f'#!/usr/bin/env bash\nexec {sys.executable} -P -m atropos_cli "$@"\n')
    (tmp_path / "bin" / "atropos").chmod(0o755)
    done = subprocess.run(
        [shutil.which("bash") or "bash", str(EXAMPLES / "slurm-b200" / "run.sh")],
        env={**os.environ, "PATH": str(tmp_path / "bin"), "RUN": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for line in ("--gpus-per-node=b200:8", "--mem=0", "--time=0-12:00:00", "--signal=B:USR1@600", "--partition=b200"):
        assert f"#SBATCH {line}\n" in done.stdout
    assert '"--tensor-parallel-size"' in done.stdout or '"--tp-size"' in done.stdout
    assert '"http://{endpoint:server0}/v1"' in done.stdout
    assert not (tmp_path / "run").exists()
