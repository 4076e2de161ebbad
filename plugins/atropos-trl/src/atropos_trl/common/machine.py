"""The machine: device, number format, free memory and disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.serving import detect_platform
from atropos_cli.sdk.training import TrainingProfile, cpu_profile, gpu_profile, training_profile

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


def here() -> TrainingProfile:
    """The defaults that fit this machine, as far as it is known without torch: what a dry run shows."""
    return training_profile(detect_platform())


def shown(profile: TrainingProfile, precision: str, checkpointing: bool | None) -> JsonDict:
    """For --dry-run: what counts here, and why where the user gave nothing."""
    return {
        "precision": profile.precision if precision == "auto" else precision,
        "gradient_checkpointing": profile.checkpointing if checkpointing is None else checkpointing,
        "attention": profile.attention,
        "profile": f"{profile.name}: {profile.reason}",
    }


def profile_of(device: torch.device) -> TrainingProfile:
    """The defaults that fit the device. Processes of one host get the same, those of its smallest GPU."""
    import torch

    if device.type != "cuda":
        return cpu_profile()
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    places = [device] if alone else [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    found = min((torch.cuda.get_device_properties(place) for place in places), key=lambda item: int(item.total_memory))
    capability = None if torch.version.hip else (int(found.major), int(found.minor))
    return gpu_profile(str(found.name), int(found.total_memory), capability)


def same_everywhere() -> bool:
    """Is one host all there is? The kinds of GPUs of others are not known here, and a batch is split alike on all."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return int(os.environ.get("LOCAL_WORLD_SIZE", world)) >= world


def processes_here() -> int:
    """Processes that are to share this host's memory; in one of them 1: the others may have begun to fill it."""
    if "RANK" in os.environ:
        return 1
    return max(1, int(os.environ.get("WORLD_SIZE", "1")) // int(os.environ.get("NNODES") or "1"))


def pick_precision(wanted: Precision, device: torch.device) -> Literal["fp32", "bf16"]:
    """auto: bf16 on a GPU that has it, else fp32 (bf16 is no faster on CPUs). Raises ConfigError when bf16 cannot be.

    bf16 means mixed precision: fp32 weights and optimiser, bf16 activations. PyTorch emulates it on GPUs that have no
    bf16 arithmetic (V100, T4), and is slower there than with fp32.
    """
    able = device.type == "cuda" and has_bf16(device)
    if wanted == "auto":
        return "bf16" if able else "fp32"
    if wanted == "bf16" and device.type == "cuda" and not able:
        raise ConfigError("precision bf16: this GPU has no bf16", hint="give --precision fp32 or auto")
    return wanted


def has_bf16(device: torch.device) -> bool:
    """In its arithmetic, not emulated."""
    import torch

    if torch.version.hip:
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cuda.get_device_capability(device) >= (8, 0))


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
