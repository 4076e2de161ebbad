"""The defaults that fit a GPU reach both trainers, where the user sets nothing. PyTorch's answers are recorded ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from atropos_trl.common import machine
from atropos_trl.config import TrlConfig
from atropos_trl.native.config import NativeConfig
from atropos_trl.native.preflight import check as check_native
from atropos_trl.sizes import batch_sizes, most_rows
from trl_support import make_plan, make_trainer, metrics, run

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.training import cpu_profile, gpu_profile

V100 = ("Tesla V100-SXM2-32GB", 32494, (7, 0))
A100 = ("NVIDIA A100-SXM4-80GB", 81051, (8, 0))
SLICE = ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9728, (9, 0))
H200 = ("NVIDIA H200", 143156, (9, 0))
GPU = torch.device("cuda", 0)
Card = tuple[str, int, tuple[int, int]]


def cards(monkeypatch: pytest.MonkeyPatch, *found: Card) -> None:
    """PyTorch as it is on a machine with these GPUs."""

    def properties(place: torch.device) -> Any:
        name, mib, (major, minor) = found[place.index]
        return SimpleNamespace(name=name, total_memory=mib << 20, major=major, minor=minor)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda place: found[place.index][2])
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)  # it says so of a V100 too, and emulates it


@pytest.mark.parametrize(
    ("card", "precision", "rows", "again"),
    [(V100, "fp32", 4, True), (A100, "bf16", 16, False), (SLICE, "bf16", 2, True), (H200, "bf16", 32, False)],
)
def test_one_gpu(card: Card, precision: str, rows: int, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, card)
    profile = machine.profile_of(GPU)
    assert (profile.precision, profile.rows, profile.checkpointing) == (precision, rows, again)
    assert machine.pick_precision("auto", GPU) == precision
    plan = make_plan("m", environment="arithmetic", group_size=16, prompts_per_step=4)
    sizes = batch_sizes(TrlConfig(), plan, most=most_rows(TrlConfig(), profile))
    assert (sizes.micro, sizes.rows) == (rows, 64)


def test_what_the_user_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, SLICE)
    plan = make_plan("m", environment="arithmetic", group_size=16, prompts_per_step=4)
    own = TrlConfig(per_device_train_batch_size=64)
    assert batch_sizes(own, plan, most=most_rows(own, machine.profile_of(GPU))).micro == 64
    assert machine.pick_precision("fp32", GPU) == "fp32"
    cards(monkeypatch, V100)
    with pytest.raises(ConfigError, match="no bf16"):
        machine.pick_precision("bf16", GPU)


def test_the_processes_of_a_host_split_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, A100, V100)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [machine.profile_of(torch.device("cuda", rank)).rows for rank in range(2)] == [4, 4]
    assert most_rows(TrlConfig(), machine.profile_of(GPU)) == 4
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert most_rows(TrlConfig(), machine.profile_of(GPU)) == 32


def test_a_loss_that_depends_on_the_micro_batch_has_the_same_one_everywhere() -> None:
    profile = gpu_profile(SLICE[0], SLICE[1] << 20, SLICE[2])
    assert most_rows(TrlConfig(algorithm="bnpo"), profile) == 32
    assert most_rows(TrlConfig(algorithm="dapo"), profile) == 2


def test_a_dry_run_shows_what_counts_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    plan = make_plan(tmp_path, environment="arithmetic", group_size=8, prompts_per_step=4)
    found = make_trainer(plan).check(plan)
    assert (found["per_device_train_batch_size"], found["precision"], found["gradient_checkpointing"]) == (
        32,
        "fp32",
        False,
    )
    assert "no GPU here" in str(found["profile"])
    monkeypatch.setattr(machine, "training_profile", lambda platform: gpu_profile(V100[0], V100[1] << 20, V100[2]))
    found = make_trainer(plan).check(plan)
    assert (found["per_device_train_batch_size"], found["precision"]) == (4, "fp32")
    assert "v100 (32 GiB): no bfloat16" in str(found["profile"])
    native = check_native(NativeConfig(), plan)
    assert (native["micro_batch_tokens"], native["gradient_checkpointing"]) == (2048, True)
    native = check_native(NativeConfig(micro_batch_tokens=100, gradient_checkpointing=False), plan)
    assert (native["micro_batch_tokens"], native["gradient_checkpointing"]) == (100, False)


def test_the_gpu_is_no_part_of_the_plan() -> None:
    """A run that began on one kind of GPU is resumed on another."""
    config = make_plan("m", environment="arithmetic").trainer.config
    assert config.get("per_device_train_batch_size") is None
    assert config.get("gradient_checkpointing") is None


def test_a_run_goes_on_with_the_same_losses_on_a_smaller_gpu(
    small: Path, env_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other rows at a time, and activations computed again, from the checkpoint on."""
    from atropos_trl import trainer

    def losses(name: str, *sessions: tuple[int, int]) -> list[tuple[float, float]]:
        """Train to each step with so many rows at a time."""
        for number, (steps, rows) in enumerate(sessions):
            profile = replace(cpu_profile(), rows=rows, checkpointing=rows < 16)
            monkeypatch.setattr(trainer, "profile_of", lambda device, profile=profile: profile)
            plan = make_plan(small, environment=f"{env_file}:Letters", config={"learning_rate": 3e-3}, steps=steps)
            run(plan, tmp_path / name, resume=number > 0)
        return [(row["loss"], row["grad_norm"]) for row in metrics(tmp_path / name)]

    whole, moved = losses("whole", (4, 16)), losses("moved", (2, 16), (4, 4))
    assert len(whole) == len(moved) == 4
    for one, other in zip(whole, moved, strict=True):
        assert other == pytest.approx(one, rel=1e-3, abs=1e-5)
