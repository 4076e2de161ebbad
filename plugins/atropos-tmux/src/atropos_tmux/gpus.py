"""GPUs of this machine for a job: those that are free, or why there are not enough, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping

from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import Gpu, Platform, detect_platform

_LEAST_BUSY_MIB = 1024
_BUSY_SHARE = 0.05
"""A GPU is in use when more than this share of its memory is, and more than a desktop takes."""


def free_gpus(wanted: int, claimed: Mapping[str, str], platform: Platform | None = None) -> list[Gpu]:
    """As many GPUs as are wanted, idle ones. claimed: those of running jobs, by UUID, with the job's name.

    CUDA_VISIBLE_DEVICES narrows the choice. Raises LaunchError.
    """
    machine = platform or detect_platform()
    if len(machine.gpus) < wanted:
        hidden = machine.all_gpus - len(machine.gpus)
        why = machine.problem or (f"CUDA_VISIBLE_DEVICES hides {hidden} more" if hidden > 0 else "")
        raise LaunchError(
            f"{wanted} GPUs are asked for, and this machine has {len(machine.gpus)}" + (f" ({why})" if why else ""),
            hint="ask for fewer, or name another machine; atropos doctor shows its GPUs",
        )
    busy = {gpu.token: reason for gpu in machine.gpus if (reason := _use(gpu, claimed)) is not None}
    free = [gpu for gpu in machine.gpus if gpu.token not in busy]
    if len(free) < wanted:
        used = "; ".join(f"{token}: {reason}" for token, reason in busy.items())
        raise LaunchError(
            f"{wanted} GPUs are asked for, and {len(free)} of {len(machine.gpus)} here are free ({used})",
            hint="ask for fewer, or wait until those jobs have ended; nvidia-smi shows who uses them",
        )
    return free[:wanted]


def _use(gpu: Gpu, claimed: Mapping[str, str]) -> str | None:
    """Who uses it; None for a free one. Of a MIG instance nvidia-smi does not report the memory in use."""
    if gpu.uuid in claimed:
        return f"job {claimed[gpu.uuid]}"
    used, total = gpu.used_mib, gpu.memory_mib
    if used is None or not total or used <= max(_LEAST_BUSY_MIB, total * _BUSY_SHARE):
        return None
    return f"{used} of {total} MiB are in use"
