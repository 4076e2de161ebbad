"""A sidecar of a groups file: which task ends at which byte, so that resuming reads 16 bytes a task.

The index is a cache. It may lag behind the file (a crash) or be missing; the file alone decides, and
what the index does not cover is read from the file itself.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

_RECORD = struct.Struct("<QQ")
_FLUSH = 64


class OffsetIndex:
    """Records of (task index, byte offset behind the task's last group), in file order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending: list[bytes] = []
        self._fd: int | None = None

    def read(self, file_size: int) -> Iterator[tuple[int, int]]:
        """Yield (task, end offset) while offsets grow and stay within the file; drop the rest of the index."""
        if not self.path.exists():
            return
        good = 0
        previous = 0
        with self.path.open("rb") as file:
            while chunk := file.read(_RECORD.size << 14):
                usable = len(chunk) - len(chunk) % _RECORD.size
                for task, end in _RECORD.iter_unpack(chunk[:usable]):
                    if end <= previous or end > file_size:
                        self._cut(good)
                        return
                    previous = end
                    good += _RECORD.size
                    yield task, end
        self._cut(good)

    def add(self, task: int, end: int) -> None:
        """Remember a written task; goes to disk in batches, since the index is only a cache."""
        self._pending.append(_RECORD.pack(task, end))
        if len(self._pending) >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write what is pending. A full disk is ignored: the groups file is what counts."""
        if not self._pending:
            return
        try:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            os.write(self._fd, b"".join(self._pending))
        except OSError:
            pass
        self._pending.clear()

    def close(self) -> None:
        self.flush()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _cut(self, size: int) -> None:
        if self.path.stat().st_size != size:
            os.truncate(self.path, size)
