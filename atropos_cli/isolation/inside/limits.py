"""The limits that the kernel keeps for one process, set in the process itself before anybody else's code runs."""

from __future__ import annotations

import os
import resource


def apply(*, memory: int, cpu_s: int, file: int, open_files: int, processes: int | None) -> None:
    """Set them for good, below those that are set already.

    memory: bytes of address space. file: bytes of the largest file it may write. processes: processes and threads
    of its user, None without a limit.
    """
    values = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: file,
        resource.RLIMIT_NOFILE: open_files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if processes is not None:
        values[resource.RLIMIT_NPROC] = processes
    for kind, value in values.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def address_space() -> int:
    """Bytes of address space that this process has now."""
    fd = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(fd, 200).split()[0]) * resource.getpagesize()
    finally:
        os.close(fd)
