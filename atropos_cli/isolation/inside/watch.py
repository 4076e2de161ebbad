"""What no limit of one process covers: the memory and the number of all processes of a run, and their end."""

# os alone: this module is loaded in every sandbox.
# ruff: noqa: PTH208

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from typing import Any

FIRST_LOOK_S = 0.05
INTERVAL_S = 0.025
_PAGE = resource.getpagesize()
_MOST = 100_000


def _read(proc: int, path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY, dir_fd=proc)
    except OSError:
        return ""
    try:
        return os.read(fd, 1 << 20).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def tree(proc: int, root: int) -> list[int]:
    """The descendants of a process, by an open /proc. Not the process itself."""
    found: list[int] = []
    waiting = [root]
    while waiting and len(found) < _MOST:
        pid = waiting.pop()
        children = [int(word) for word in _read(proc, f"{pid}/task/{pid}/children").split()]
        if pid != root:
            # Children belong to the thread that made them.
            for task in _tasks(proc, pid):
                if task != pid:
                    children += [int(word) for word in _read(proc, f"{pid}/task/{task}/children").split()]
        found += children
        waiting += children
    return found


def _tasks(proc: int, pid: int) -> list[int]:
    try:
        fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    except OSError:
        return []
    try:
        return [int(name) for name in os.listdir(fd)]
    except OSError:
        return []
    finally:
        os.close(fd)


def exceeded(proc: int, root: int, limits: dict[str, Any]) -> str | None:
    """The limit that a run is beyond, "memory" or "processes", else None. Pages shared with the zygote do not count."""
    pids = tree(proc, root)
    if len(pids) > max(1, limits["processes"]):
        return "processes"
    pages = 0
    for pid in pids:
        words = _read(proc, f"{pid}/statm").split()
        if len(words) > 2:
            pages += max(0, int(words[1]) - int(words[2]))
    return "memory" if pages * _PAGE > limits["memory_mb"] << 20 else None


def resident(pid: int) -> int:
    """Resident memory of one process in bytes; 0 where /proc does not exist."""
    try:
        fd = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(fd, 200).split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
    finally:
        os.close(fd)


def kill_tree(proc: int, root: int) -> None:
    """End all descendants of a subreaper, however fast they multiply: stop first, then kill, until none is left."""
    give_up = time.monotonic() + 10.0
    while time.monotonic() < give_up:
        pids = tree(proc, root)
        alive = [pid for pid in pids if not _read(proc, f"{pid}/stat").rpartition(")")[2].startswith(" Z")]
        if not alive:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in alive:
                try:
                    os.kill(pid, number)
                except OSError:
                    continue


def kill_strays(known: set[int]) -> None:
    """End all children of this process, a subreaper, but the known ones."""
    while strays := [pid for pid in _own_children() if pid not in known]:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _own_children() -> list[int]:
    try:
        fd = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY)
    except OSError:
        return []
    try:
        return [int(word) for word in os.read(fd, 1 << 20).split()]
    finally:
        os.close(fd)
