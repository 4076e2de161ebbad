"""The machine: device, number format, free memory and disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from atropos_cli.sdk import ConfigError

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "fp32", "bf16"]


def pick_device() -> torch.device:
    """This process's GPU if there is one (LOCAL_RANK picks among several), else the CPU."""
    import torch

    if torch.cuda.is_available():
        # An instance of a divided GPU is the only one that its process sees.
        divided = os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith("MIG-")
        return torch.device("cuda", 0 if divided else int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cpu")


def pick_precision(wanted: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """auto: bf16 on a GPU that has it, else fp32 (bf16 is no faster on CPUs). Raises ConfigError when bf16 cannot be.

    bf16 means mixed precision: fp32 weights and optimiser, bf16 activations.
    """
    import torch

    able = device.type == "cuda" and torch.cuda.is_bf16_supported()
    if wanted == "auto":
        return "bf16" if able else "fp32"
    if wanted == "bf16" and device.type == "cuda" and not able:
        raise ConfigError("precision bf16: this GPU has no bf16", hint="give --precision fp32 or auto")
    return wanted


def send_no_telemetry() -> None:
    """Keep TRL from reporting model and GPU over the network, unless HF_HUB_DISABLE_TELEMETRY=0 allows it."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import constants

    # The variable is read when huggingface_hub is imported, which the model's backend may have done already.
    constants.HF_HUB_DISABLE_TELEMETRY = os.environ["HF_HUB_DISABLE_TELEMETRY"].upper() in {"1", "ON", "YES", "TRUE"}


def free_memory(device: torch.device | None = None) -> int | None:
    """Bytes that may still be allocated on the device (None: the CPU's memory), None where the system does not say."""
    if device is not None and device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            found.append(max(0, int(limit) - int((root / "memory.current").read_text(encoding="ascii"))))
    return min(found, default=None)


def free_disk(folder: Path) -> int:
    """Bytes free where `folder` is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def human(size: float) -> str:
    """A size in MiB or GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"
