"""Append-only files that survive kill -9, a full disk and two writers.

One record is one os.write. A record that could not be written whole is cut off again, so the file
always ends at a record boundary as long as the process lives; after a crash `repair_tail` does it.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from atropos_cli.errors import ConfigError, DataError
from atropos_cli.paths import replacing
from atropos_cli.redaction import redacted_bytes

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says where there is no room."""


class AppendLog:
    """An open file that only grows. fsync: "group" syncs each record, "interval" once a second, "never" not.

    Under "interval" a small thread syncs, so that a slow disk never holds up the event loop.
    Raises DataError when the disk is full or the write fails; everything written before stays whole.
    """

    def __init__(self, path: Path, *, fsync: str = "interval", interval: float = 1.0) -> None:
        self.path = path
        self.records = 0
        self._fsync = fsync
        self._interval = interval
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._fd).st_size
        self._dirty = threading.Event()
        self._closed = threading.Event()
        self._syncer: threading.Thread | None = None

    def write(self, record: bytes) -> None:
        """Append one record, whole or not at all."""
        view = memoryview(record)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            os.ftruncate(self._fd, self.size)
            reason = "no space left" if error.errno in FULL else os.strerror(error.errno or 0)
            raise DataError(
                f"{self.path}: {reason}; {self.records} records of this run are safe",
                hint="make room, then continue with --resume",
            ) from error
        self.size += len(record)
        self.records += 1
        if self._fsync == "group":
            os.fdatasync(self._fd)
        elif self._fsync == "interval" and not self._dirty.is_set():
            self._dirty.set()
            if self._syncer is None:
                self._syncer = threading.Thread(target=self._sync_loop, name="fsync", daemon=True)
                self._syncer.start()

    def status(self) -> os.stat_result:
        """Of the open file."""
        return os.fstat(self._fd)

    def close(self) -> None:
        """Sync as the policy says and close; safe to call twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._dirty.set()
        if self._syncer is not None:
            self._syncer.join()
        elif self._fsync == "group":
            os.fdatasync(self._fd)
        os.close(self._fd)

    def _sync_loop(self) -> None:
        while True:
            self._dirty.wait()
            self._closed.wait(self._interval)
            self._dirty.clear()
            # Only now: a close() that came just before clear() would be waited for in vain.
            closing = self._closed.is_set()
            os.fdatasync(self._fd)
            if closing:
                return


def atomic_write(path: Path, data: bytes) -> None:
    """Replace a file as a whole: a reader sees the old content or the new, never a part, and no secret.

    A link stays a link: its target is replaced.
    Raises DataError when the disk is full; the old content stays.
    """
    try:
        with replacing(path) as file:
            file.write(redacted_bytes(data))
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error


def write_orders(path: Path, data: bytes) -> None:
    """Write a plan that another process will execute, unchanged. Raises ConfigError when it would contain a secret."""
    if redacted_bytes(data) != data:
        raise ConfigError(
            f"{path} would hold a secret, in an option or in a variable",
            hint="leave it in an environment variable of the job, and name the variable (--api-key-env, ${NAME})",
        )
    atomic_write(path, data)


def move_tail(path: Path, offset: int) -> Path | None:
    """Cut a file at `offset`; the rest goes to `<name>.torn`, so that nothing is thrown away.

    Returns that file, or None when nothing but blanks stood there.
    """
    side = path.with_name(path.name + ".torn")
    with path.open("r+b") as file:
        file.seek(offset)
        blank = not any(chunk.strip() for chunk in iter(lambda: file.read(1 << 20), b""))
        if not blank:
            file.seek(offset)
            with side.open("ab") as torn:
                while chunk := file.read(1 << 20):
                    torn.write(chunk)
                torn.write(b"\n")
        file.truncate(offset)
        os.fsync(file.fileno())
    return None if blank else side
