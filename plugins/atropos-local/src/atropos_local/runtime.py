"""The machine: threads, device, number format, free memory."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.sdk.backends import FatalBackendError
from atropos_cli.sdk.models import cpu_count

if TYPE_CHECKING:
    import torch

SMALL_MACHINE = 8


def pick_threads(wanted: int | None) -> int | None:
    """CPU threads to compute with; None leaves the number to torch.

    On a small machine these are the CPUs that nothing else keeps busy at the moment: threads wait for
    the slowest of them, so that one which has to share its CPU holds up all others.
    """
    cpus = cpu_count()
    if wanted is not None or cpus > SMALL_MACHINE or "OMP_NUM_THREADS" in os.environ:
        return wanted
    try:
        busy = int(os.getloadavg()[0])
    except OSError:
        return None
    return max(1, cpus - busy)


def pick_device(wanted: str) -> torch.device:
    """`auto`: the GPU if there is one, else the CPU. Raises FatalBackendError for a device that is not there."""
    import torch

    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first_line = str(error).split("\n", 1)[0]
        raise FatalBackendError(
            f"device {wanted!r} cannot be used: {first_line}", hint="give --backend.device auto or cpu"
        ) from error
    return device


def pick_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """`auto`: float32 on the CPU; on a GPU bfloat16, or float16 where the GPU lacks it."""
    import torch

    if wanted != "auto":
        dtype = getattr(torch, wanted)
        assert isinstance(dtype, torch.dtype)
        return dtype
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def free_memory(device: torch.device) -> int:
    """Bytes that may still be allocated on the device, as far as the system says."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [size for size in (_available(), _cgroup_left()) if size is not None]
    return min(found, default=4 << 30)


def is_memory_error(error: BaseException) -> bool:
    """Did it fail for want of memory, of the machine or of the GPU? torch says so in an error of many meanings."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    words = ("not enough memory", "out of memory", "can't allocate memory", "cannot allocate memory")
    return isinstance(error, RuntimeError | OSError) and any(word in text for word in words)


def _available() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return None


def _cgroup_left() -> int | None:
    """What the container may still take (cgroup v2); None where it has no limit."""
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            return max(0, int(limit) - int((root / "memory.current").read_text(encoding="ascii")))
    return None
