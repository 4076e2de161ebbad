"""What a machine tells of itself, with and without GPUs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from atropos_training.settings import TrainSettings

from atropos_cli.domain.refs import ComponentRef
from atropos_cli.domain.tracking import RolloutTracking
from atropos_cli.domain.training import TrainPlan
from atropos_cli.tracking.machine import Machine, gpu_reader, gpu_values

TWO = "0, GPU-aaaa1111, 97, 40960, 81920, 312.55\n1, GPU-bbbb2222, [N/A], 1024, 81920, [N/A]\nodd line\n"


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program of that name, first on the path."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "answer").write_text(TWO)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [(None, "01"), ("1", "1"), ("GPU-aaaa", "0"), ("7", "01"), ("0,1", "01"), ("MIG-x", "01")],
)
def test_gpus_that_the_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: str
) -> None:
    nvidia_smi(tmp_path, monkeypatch, f'case "$1" in --query-gpu=*) cat {tmp_path}/answer;; *) exit 9;; esac')
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    reader = gpu_reader()
    assert reader is not None
    found = reader()
    assert {name[len("machine/gpu")] for name in found} == set(gpus)
    if "0" in gpus:
        assert found["machine/gpu0_percent"] == 97
        assert found["machine/gpu0_memory_gib"] == 40
        assert found["machine/gpu0_memory_percent"] == 50
        assert found["machine/gpu0_power_watts"] == 312.55
    if "1" in gpus:
        assert "machine/gpu1_percent" not in found
        assert found["machine/gpu1_memory_gib"] == 1


@pytest.mark.parametrize("script", ["exit 9", "echo garbage,,", "kill -9 $$", "printf '\\377\\376'"])
def test_a_driver_that_fails_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    nvidia_smi(tmp_path, monkeypatch, script)
    machine = Machine(every=0.01)
    time.sleep(0.3)
    found = machine.look()
    machine.close()
    assert not [name for name in found if "gpu" in name]


def test_without_gpus_the_rest_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu_reader() is None
    machine = Machine()
    until = time.monotonic() + 0.25
    while time.monotonic() < until:
        pass
    found = machine.look()
    assert 10 < found["machine/process_cpu_percent"] < 3200
    if Path("/proc/meminfo").exists():
        assert 0 < found["machine/memory_percent"] < 100
        assert 0 < found["machine/cpu_percent"] <= 100
    assert gpu_values([]) == {}


def test_tracking_is_no_part_of_a_plans_identity() -> None:
    bare = TrainPlan(atropos_version="0", method="grpo", trainer=ComponentRef(name="x"), model="m")
    told = bare.replace(trackers=("wandb",), project="p", tags=("a",), run_group="g", entity="e")
    assert told.digest == bare.digest
    section = RolloutTracking(trackers=("wandb",), project="p", tags=("a",), track_every=3)
    own = TrainSettings(project="mine").over(section)
    assert (own.trackers, own.project, own.tags, own.entity) == (("wandb",), "mine", ("a",), None)
