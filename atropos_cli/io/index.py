"""A sidecar of a groups file: where each task ends and a checksum of its bytes, so that resuming need not parse.

    header    magic, prefix of the run's ids, then what `seal` knew: count and checksum of the records, and
              size, mtime and ctime of the groups file
    records   task, end offset, checksum of the task's bytes and of its number; in file order

The index is a cache: the groups file alone decides. A sealed index is believed as long as nobody has touched the
file since. After a crash, a copy or an edit each record is compared with the bytes it describes, up to the first
that does not agree; what follows is read from the file itself.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

_MAGIC = b"ATRIDX2\n"
_HEADER = struct.Struct("<8s16sQIQqq4x")
_RECORD = struct.Struct("<QQI")
_TASK = struct.Struct("<Q")
_BATCH = 64  # records that go to disk together
_CHUNK = 1 << 20
_SEALED_FROM = 16 << 20  # bytes of a groups file; a smaller one is compared in no time
_TICK = 20_000_000  # ns; file systems stamp files by a clock that moves every few ms
_SECOND = 1_000_000_000


def checksum(task: int, data: bytes, before: int = 0) -> int:
    """Of a task's bytes and its number. before: crc32 of bytes of the task that come ahead of `data`."""
    return crc32(_TASK.pack(task), crc32(data, before))


def records_in(path: Path) -> int:
    """How many tasks an index names, by its size; the last few may not be in it yet. 0 without an index."""
    try:
        return max(0, path.stat().st_size - _HEADER.size) // _RECORD.size
    except OSError:
        return 0


class OffsetIndex:
    """Records of (task, byte offset behind the task's last group, checksum). `begin` comes before the first `add`."""

    def __init__(self, path: Path, *, prefix: str) -> None:
        self.path = path
        self._prefix = prefix.encode()[:16].ljust(16, b"\0")
        self._pending: list[bytes] = []
        self._fd = -1
        self._size = 0
        self._sealed: bytes | None = None

    def read(self, file: Path, status: os.stat_result) -> Iterator[tuple[int, int]]:
        """(task, end offset) of the tasks that the groups file surely holds, from its beginning."""
        try:
            with self.path.open("rb") as index:
                header = index.read(_HEADER.size)
                if len(header) < _HEADER.size or header[:24] != _MAGIC + self._prefix:
                    return
                if self._is_current(index, header, status):
                    self._sealed = header
                    index.seek(_HEADER.size)
                    yield from ((task, end) for task, end, _ in _records(index))
                    return
                index.seek(_HEADER.size)
                with file.open("rb") as data:
                    yield from _agreeing(_records(index), data, status.st_size)
        except FileNotFoundError:
            return

    def begin(self, count: int) -> None:
        """Keep the first `count` records and open for more. Without a place to write, the index is done without."""
        self._size = _HEADER.size + count * _RECORD.size
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if os.fstat(self._fd).st_size != self._size:
                os.ftruncate(self._fd, self._size)
            if self._sealed is None:
                os.pwrite(self._fd, self._header(0, 0, None), 0)
        except OSError:
            self._give_up()

    def add(self, task: int, end: int, check: int) -> None:
        """Remember a written task; goes to disk in batches, since the index is only a cache."""
        self._sealed = None
        self._pending.append(_RECORD.pack(task, end, check))
        if len(self._pending) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write pending entries. A full disk is ignored: only the groups file counts."""
        if self._pending and self._fd >= 0:
            data = b"".join(self._pending)
            try:
                if os.pwrite(self._fd, data, self._size) != len(data):
                    raise OSError
                self._size += len(data)
            except OSError:
                self._give_up()
        self._pending.clear()

    def seal(self, status: os.stat_result) -> None:
        """Note the state in which the groups file is left. status: of the file, after its last write."""
        self.flush()
        if self._fd < 0 or self._sealed is not None or status.st_size < _SEALED_FROM:
            return
        if status.st_ctime_ns % _SECOND == 0:
            return  # a file system that counts in seconds: too coarse to tell a change
        # A change within the same tick of the file system's clock would not show.
        for _ in range(10):
            if time.time_ns() - status.st_ctime_ns > _TICK:
                break
            time.sleep(_TICK / _SECOND / 4)
        else:
            return
        try:
            with os.fdopen(os.dup(self._fd), "rb") as index:
                count, check = _summed(index)
            os.pwrite(self._fd, self._header(count, check, status), 0)
        except OSError:
            self._give_up()

    def close(self) -> None:
        """Safe to call twice."""
        self.flush()
        self._give_up()

    def _give_up(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _header(self, count: int, check: int, status: os.stat_result | None) -> bytes:
        stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns) if status is not None else (0, 0, 0)
        return _HEADER.pack(_MAGIC, self._prefix, count, check, *stamp)

    def _is_current(self, index: BinaryIO, header: bytes, status: os.stat_result) -> bool:
        """Was the groups file left as it is now, and is this the index that was left with it?"""
        return status.st_size > 0 and header == self._header(*_summed(index), status)


def _records(index: BinaryIO) -> Iterator[tuple[int, int, int]]:
    while chunk := index.read(_RECORD.size << 14):
        yield from _RECORD.iter_unpack(chunk[: len(chunk) - len(chunk) % _RECORD.size])


def _summed(index: BinaryIO) -> tuple[int, int]:
    """(count, checksum) of all records."""
    index.seek(_HEADER.size)
    check = size = 0
    while chunk := index.read(_CHUNK):
        check = crc32(chunk, check)
        size += len(chunk)
    return size // _RECORD.size, check


def _agreeing(records: Iterator[tuple[int, int, int]], data: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
    """The records up to the first that does not describe the bytes of the groups file."""
    start = 0
    for task, end, check in records:
        if not start <= end <= size:
            return
        crc = 0
        for at in range(start, end, _CHUNK):
            crc = crc32(data.read(min(_CHUNK, end - at)), crc)
        if checksum(task, b"", crc) != check:
            return
        start = end
        yield task, end
