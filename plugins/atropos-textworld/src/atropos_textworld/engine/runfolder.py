"""The temporary folder of one run, removed whatever ends the run.

The parent holds a lock on a file in it, which the kernel releases when the parent goes. A worker
that leaves, and the next run on this machine, remove a folder whose lock is free: so nothing stays
behind even when everything was killed at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX = "atropos-textworld-"


class RunFolder:
    """A new folder under the system's temporary folder; also sweeps those that other runs left there."""

    def __init__(self) -> None:
        for other in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
            remove_abandoned(other)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # Locked before it has its name: nobody may see it free.
        unnamed = self.path / "unlocked"
        self._lock = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(_lock_file(self.path))
        # Also runs when the interpreter exits without remove().
        self.remove = weakref.finalize(self, _remove, self.path, self._lock)
        """Remove the folder with all that is in it. May be called again."""


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _lock_file(folder: Path) -> Path:
    return folder / "lock"


def remove_abandoned(folder: Path) -> bool:
    """Remove a run's folder if the run is over; whether it was. Not for a folder that is being made."""
    try:
        lock = os.open(_lock_file(folder), os.O_RDWR)
    except OSError:
        return False
    with contextlib.closing(os.fdopen(lock)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        shutil.rmtree(folder, ignore_errors=True)
        return True
