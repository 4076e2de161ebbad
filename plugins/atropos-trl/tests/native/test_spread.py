"""How rows are cut and spread: every row once, within the limit, about equal work."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from atropos_trl.native.config import NativeConfig
from atropos_trl.native.loss import LossSpec
from atropos_trl.native.memory import kept
from atropos_trl.native.preflight import check
from atropos_trl.native.spread import area, shares, spread
from native_support import make_plan

from atropos_cli.sdk import ConfigError


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_every_row_once(processes: int) -> None:
    rng = random.Random(processes)
    for count in (0, 1, 2, 7, 200):
        lengths = [int(rng.paretovariate(1.2) * 20) for _ in range(count)]
        parts = spread(lengths, 2000, processes)
        assert len(parts) == processes
        assert sorted(i for part in parts for batch in part for i in batch) == list(range(count))
        areas = [area([lengths[i] for i in batch]) for part in parts for batch in part]
        assert all(size <= max(2000, max(lengths)) for size in areas)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_little_padding_and_equal_work() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(50, 1000) for _ in range(256)]
    found = shares(lengths, spread(lengths, 8192, 4))
    assert found["padding"] < 0.08
    assert found["imbalance"] < 1.05


@pytest.mark.parametrize(
    ("config", "world", "message"),
    [
        ({"cpu_offload": True}, 2, "--cpu-offload needs weights that are spread"),
        ({"sharding": "fsdp2"}, 1, "needs several processes"),
        ({"lora_4bit": True}, 1, "quantises the weights below LoRA adapters"),
        ({"lora_4bit": True, "lora_r": 4, "sharding": "fsdp2"}, 2, "cannot be spread"),
        ({"lora_4bit": True, "lora_r": 4}, 1, "needs the package bitsandbytes"),
    ],
)
def test_what_cannot_be_together(
    config: dict[str, object], world: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atropos_trl.native import preflight

    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    monkeypatch.setenv("WORLD_SIZE", str(world))
    with pytest.raises(ConfigError, match=message) as caught:
        check(NativeConfig.model_validate(config), make_plan("no-such-model"))
    assert caught.value.hint


def test_the_estimate_counts_what_each_process_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per weight: 4 bytes, 4 of gradient, 8 of AdamW; a frozen half 2."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    billion, plan, spec = 10**9, make_plan("m"), LossSpec()

    def size(number: str = "fp32", beta: float = 0.0, **config: object) -> float:
        return kept(NativeConfig.model_validate(config), plan, LossSpec(beta=beta), number).memory(billion) / billion

    assert spec.beta == 0
    assert size() == pytest.approx(16)
    assert size(beta=0.1) == pytest.approx(20)
    assert size(sharding="fsdp2") == pytest.approx(4)
    assert size(sharding="fsdp2", cpu_offload=True) < 1
    assert size(lora_r=8) == pytest.approx(4 + 0.05 * 16)
    assert size("bf16", lora_r=8) == pytest.approx(2 + 0.05 * 16)
    assert size("bf16", lora_r=8, lora_4bit=True) < 1.5


@pytest.mark.parametrize(
    ("config", "fits", "too_little"),
    [
        ({}, 4 * 16.5, 4 * 15.5),
        ({"sharding": "fsdp2"}, 16.5, 15.5),
        ({"sharding": "fsdp2", "cpu_offload": True}, 16.5, 15.5),
    ],
)
def test_processes_of_a_cpu_share_its_memory(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, object], fits: float, too_little: float
) -> None:
    from atropos_trl import checks

    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(checks, "_GPU", Path("/no/gpu"))
    what = kept(NativeConfig.model_validate(config), make_plan("m"), LossSpec(), "fp32")
    free = [int(fits * 10**9)]
    monkeypatch.setattr(checks, "free_memory", lambda: free[0])
    assert checks.check_memory(10**9, what)["parameters"] == 10**9
    free[0] = int(too_little * 10**9)
    with pytest.raises(ConfigError, match="in 4 processes"):
        checks.check_memory(10**9, what)
    monkeypatch.setenv("RANK", "1")  # one of them: the others have begun to fill it
    if not config:
        assert checks.check_memory(10**9, what)["parameters"] == 10**9
