"""Command lines that fit the cluster of this machine."""

from __future__ import annotations

import shutil
import subprocess

_CPU = (
    "atropos slurm submit --time 1h -- gen textworld --limit 100 --output runs/play",
    "atropos slurm submit --time 2h -- train grpo --output runs/learn",
)
_ARRAY = "atropos slurm submit --array 4 --time 1h -- gen textworld --limit 1000 --output runs/wide"
_GPU = (
    "atropos slurm submit --gpus-per-node 1 --time 4h --serve vllm --model MODEL -- gen textworld --output runs/play",
    "atropos slurm submit --gpus-per-node 1 --time 8h -- train grpo --env textworld --model MODEL --output runs/learn",
)


def examples() -> tuple[str, ...]:
    """Jobs with GPUs where the cluster offers any."""
    return (*_GPU, _ARRAY) if _has_gpus() else (*_CPU, _ARRAY)


def _has_gpus() -> bool:
    """Does a partition of this cluster offer GPUs?"""
    sinfo = shutil.which("sinfo")
    if sinfo is None:
        return False
    try:
        asked = [sinfo, "--noheader", "--format=%G"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "gpu" in done.stdout
