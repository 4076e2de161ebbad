"""Locks that processes of one machine, or of a file system that shares them, take in turn; the kernel frees them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PAUSE_S = 0.02


def lock_fd(fd: int, *, wait: float | None = None, shared: bool = False) -> None:
    """Lock an open file or folder until it is closed. wait: seconds to try for; None: as long as it takes.

    shared: several may hold it so at once. Raises BlockingIOError when somebody else holds it, OSError where the file
    system has no locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if wait is None:
        fcntl.flock(fd, kind)
        return
    deadline = time.monotonic() + wait
    while True:
        try:
            return fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except PermissionError as error:  # how some file systems say it
            held = BlockingIOError(*error.args)
        except BlockingIOError as error:
            held = error
        if time.monotonic() >= deadline:
            raise held
        time.sleep(_PAUSE_S)


@contextlib.contextmanager
def file_lock(path: Path, *, wait: float | None = None) -> Iterator[int]:
    """Hold the lock of a file, which is made where it is missing, or of a folder; yields its open descriptor.

    A file is open for reading and appending. wait, errors: see `lock_fd`; OSError also when it cannot be opened.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_APPEND
    fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        lock_fd(fd, wait=wait)
        yield fd
    finally:
        os.close(fd)
