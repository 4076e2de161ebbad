"""Which GPUs a job gets, and why it does not start where there are too few."""

from __future__ import annotations

from dataclasses import replace

import pytest
from atropos_tmux.gpus import free_gpus

from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import Gpu, Platform

A100 = Gpu(0, "NVIDIA A100-SXM4-80GB", 81920, 4, (8, 0), "550", "GPU-0", token="0")
PART = replace(A100, name="NVIDIA A100-SXM4-80GB MIG 1g.10gb", memory_mib=9728, used_mib=None, mig=True)


def machine(*used: int | None, **fields: int | str) -> Platform:
    """A100s of which so many MiB are in use."""
    gpus = [replace(A100, index=n, uuid=f"GPU-{n}", token=str(n), used_mib=mib) for n, mib in enumerate(used)]
    return Platform("a100", tuple(gpus), **{"all_gpus": len(gpus), **fields})  # type: ignore[arg-type]


def tokens(wanted: int, where: Platform, **claimed: str) -> list[str]:
    return [gpu.token for gpu in free_gpus(wanted, {f"GPU-{key[1:]}": job for key, job in claimed.items()}, where)]


def test_idle_ones_are_chosen() -> None:
    assert tokens(2, machine(4, 70000, 900, 4)) == ["0", "2"]
    assert tokens(2, machine(4, 70000, 900, 4), g0="mine") == ["2", "3"]
    assert tokens(1, machine(None)) == ["0"]  # its driver does not say


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (machine(), "this machine has 0"),
        (machine(problem="nvidia-smi: no answer"), r"has 0 \(nvidia-smi: no answer\)"),
        (machine(4, all_gpus=8), r"has 1 \(CUDA_VISIBLE_DEVICES hides 7 more\)"),
    ],
)
def test_more_than_there_are(where: Platform, said: str) -> None:
    with pytest.raises(LaunchError, match=said) as refused:
        free_gpus(2, {}, where)
    assert refused.value.exit_code == 7


def test_more_than_are_free() -> None:
    with pytest.raises(LaunchError, match=r"1 of 3 here are free \(0: 70000 of 81920 MiB are in use; 2: job play\)"):
        tokens(2, machine(70000, 4, 4), g2="play")


def test_a_small_card_with_a_desktop_is_free() -> None:
    card = replace(A100, name="NVIDIA GeForce RTX 3060", memory_mib=12288, used_mib=800)
    assert free_gpus(1, {}, Platform("gpu", (card,), 1)) == [card]


def test_instances_are_gpus_of_their_own() -> None:
    parts = tuple(replace(PART, uuid=f"MIG-{n}", token=f"MIG-{n}") for n in range(3))
    assert free_gpus(2, {"MIG-0": "other"}, Platform("a100", parts, 1)) == list(parts[1:])
