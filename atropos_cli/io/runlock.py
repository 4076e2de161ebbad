"""The lock of a run folder: taken by whoever writes, asked by whoever only looks. The kernel frees it after a crash."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from atropos_cli.errors import DataError, RunLocked
from atropos_cli.io.lock import lock_fd

LockState = Literal["free", "held", "left", "elsewhere", "unknown"]
_HOLDER = re.compile(rb"pid \d+ on (\S+)")
_WAIT_S = 0.06


def lock_state(folder: Path) -> LockState:
    """Who holds the run's lock.

    left: nobody, and the last holder, on this machine, was killed. elsewhere: nobody that this machine can see, but
    the last holder ran on another one, whose locks may not be visible here. unknown: the file system does not tell.
    """
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return "free"
    except OSError:
        return "unknown"
    try:
        lock_fd(fd, wait=0, shared=True)
        holder = _HOLDER.match(os.pread(fd, 300, 0))
    except OSError as error:
        return "held" if isinstance(error, BlockingIOError) else "unknown"
    finally:
        os.close(fd)
    if holder is None:
        return "free"
    return "left" if holder[1].decode(errors="replace") == socket.gethostname() else "elsewhere"


def lock(folder: Path) -> int:
    """Take the lock of a folder. Raises RunLocked when another process holds it, DataError when it cannot be had."""
    path = folder / "lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)  # the holder of a run that never began removed it
        return lock(folder)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}", hint="give another --output") from error
    try:
        lock_fd(fd, wait=_WAIT_S)  # whoever only asks for the lock's state holds it for a moment
    except OSError as error:
        holder = os.pread(fd, 300, 0).decode(errors="replace").strip() or "another process"
        os.close(fd)
        if not isinstance(error, BlockingIOError):
            raise DataError(
                f"{path} cannot be locked: {error.strerror or error}",
                hint="two processes would spoil each other's run; give an --output on a file system that has locks",
            ) from error
        raise RunLocked(
            f"{folder} is being written by {holder}", hint=f"wait for it, or give another --output (lock: {path})"
        ) from error
    if not guards(fd, path):
        # The holder removed it between our open and our lock: this lock guards nothing.
        os.close(fd)
        folder.mkdir(parents=True, exist_ok=True)
        return lock(folder)
    with contextlib.suppress(OSError):  # on a full disk: who holds it is good to know, no more
        os.ftruncate(fd, 0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()} since {since}\n".encode(), 0)
    return fd


def guards(fd: int, path: Path) -> bool:
    """Is this the lock file that stands at `path`?"""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def unlock(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
    os.close(fd)
