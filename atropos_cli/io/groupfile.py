"""groups.jsonl (or groups.jsonl.zst): one scored group a line, appended, repaired and indexed.

Recovery after a crash: a torn last line, and groups of a task whose final group is missing, go to
`<name>.torn`; then the file holds whole tasks only, and the run goes on behind them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atropos_cli.domain.group import ScoredGroup, parse_group_id
from atropos_cli.errors import DataError
from atropos_cli.io.append import AppendLog, move_tail
from atropos_cli.io.index import OffsetIndex

_HEADER = re.compile(rb'\{"schema_version":\d+,"group_id":"([^"\\]+)","last":(true|false)[,}]')


def encode_group(group: ScoredGroup) -> bytes:
    """The group as one line of strict JSON, without the newline."""
    return group.__pydantic_serializer__.to_json(group, exclude_none=True)


def read_header(line: bytes) -> tuple[str, bool]:
    """(group id, last) of a line. Fast for lines we wrote; any other JSON object with the keys is read too.

    Raises ValueError for a line that is no group.
    """
    match = _HEADER.match(line)
    if match is not None:
        return match[1].decode(), match[2] == b"true"
    record: Any = json.loads(line)
    if not isinstance(record, dict) or not isinstance(record.get("group_id"), str):
        raise ValueError("not a group: no group_id")
    return record["group_id"], record.get("last", True) is not False


class GroupFile:
    """An open groups file of one run. `recover` must be exhausted before the first `write`."""

    def __init__(self, path: Path, *, prefix: str, fsync: str = "interval") -> None:
        self.path = path
        self.prefix = prefix
        self._fsync = fsync
        self._index = OffsetIndex(path.with_name(path.name + ".idx"))
        self._log: AppendLog | None = None

    def recover(self) -> Iterator[int]:
        """Yield the task of every complete task in the file, then cut off and keep aside what is not complete.

        Raises DataError with file and line for a broken line that is not the torn last one, and for a group
        of another plan; the file is not touched then.
        """
        size = self.path.stat().st_size if self.path.exists() else 0
        complete = 0
        if self._index_fits(size):
            for task, end in self._index.read(size):
                complete = end
                yield task
        else:
            self._index.path.unlink(missing_ok=True)
        for header, end in self._scan(complete, size):
            group_id, last = header
            if last:
                complete = end
                task = self._task_of(group_id)
                self._index.add(task, end)
                yield task
        if complete < size:
            move_tail(self.path, complete)
        self._log = AppendLog(self.path, fsync=self._fsync)

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        """Append all groups of one task in one write."""
        assert self._log is not None, "recover() comes first"
        lines = b"".join(encode_group(group) + b"\n" for group in groups)
        self._log.write(self._encode(lines))
        self._index.add(self._task_of(groups[-1].group_id), self._log.size)

    def close(self) -> None:
        """Sync and close. Safe to call twice."""
        self._index.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def _encode(self, lines: bytes) -> bytes:
        return lines

    def _scan(self, start: int, size: int) -> Iterator[tuple[tuple[str, bool], int]]:
        """(header, end offset) of each whole line from `start`; stops silently before a torn last line."""
        if start >= size:
            return
        with self.path.open("rb") as file:
            file.seek(start)
            end = start
            for line in file:
                if not line.endswith(b"\n"):
                    return
                end += len(line)
                yield self._header(line, end), end

    def _header(self, line: bytes, end: int) -> tuple[str, bool]:
        try:
            return read_header(line)
        except ValueError as error:
            raise DataError(
                f"{self.path}:{self._line_number(end)}: broken line: {error}",
                hint="the file was not changed; remove or mend that line, then resume",
            ) from error

    def _line_number(self, end: int) -> int:
        count = 0
        with self.path.open("rb") as file:
            left = end
            while left > 0 and (chunk := file.read(min(left, 1 << 20))):
                count += chunk.count(b"\n")
                left -= len(chunk)
        return count

    def _task_of(self, group_id: str) -> int:
        try:
            prefix, task = parse_group_id(group_id)
        except ValueError as error:
            raise DataError(f"{self.path}: {error}") from error
        if prefix != self.prefix:
            raise DataError(
                f"{self.path}: group {group_id!r} belongs to another plan (this one's ids begin with {self.prefix!r})",
                hint="use another --output, or merge the files with `atropos merge`",
            )
        return task

    def _index_fits(self, size: int) -> bool:
        """Does the last usable index record point behind a line of the task it names?"""
        path = self._index.path
        if not path.exists():
            return True
        with path.open("rb") as file:
            position = os.fstat(file.fileno()).st_size // 16 * 16
            while position:
                position -= 16
                file.seek(position)
                raw = file.read(16)
                task, end = int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")
                if end <= size:
                    return self._ends_task(task, end)
        return True

    def _ends_task(self, task: int, end: int) -> bool:
        """Is the line that ends at `end` the final group of `task`? Reads backwards to the line's start."""
        with self.path.open("rb") as file:
            tail = b""
            start = end
            while start > 0:
                step = min(start, 1 << 16)
                start -= step
                file.seek(start)
                tail = file.read(step) + tail
                newline = tail.rfind(b"\n", 0, len(tail) - 1)
                if newline >= 0:
                    tail = tail[newline + 1 :]
                    break
        try:
            group_id, last = read_header(tail)
            return tail.endswith(b"\n") and last and parse_group_id(group_id) == (self.prefix, task)
        except ValueError:
            return False


class ZstGroupFile(GroupFile):
    """The same, compressed: each task is one zstd frame, so a torn tail costs that task alone."""

    def __init__(self, path: Path, *, prefix: str, fsync: str = "interval") -> None:
        super().__init__(path, prefix=prefix, fsync=fsync)
        try:
            import zstandard
        except ModuleNotFoundError as error:
            raise DataError("writing .zst needs zstandard", hint="pip install 'atropos-cli[zst]'") from error
        self._zstandard = zstandard
        self._compressor = zstandard.ZstdCompressor(level=3)

    def _encode(self, lines: bytes) -> bytes:
        return bytes(self._compressor.compress(lines))

    def _scan(self, start: int, size: int) -> Iterator[tuple[tuple[str, bool], int]]:
        if start >= size:
            return
        with self.path.open("rb") as file:
            file.seek(start)
            end = start
            rest = b""
            while True:
                frame = self._zstandard.ZstdDecompressor().decompressobj()
                lines = bytearray()
                used = 0
                while not frame.eof:
                    chunk = rest or file.read(1 << 20)
                    if not chunk:
                        return
                    rest = b""
                    used += len(chunk)
                    lines += self._decompress(frame, chunk, end)
                rest = frame.unused_data
                end += used - len(rest)
                for line in bytes(lines).splitlines(keepends=True):
                    yield self._header(line, end), end

    def _decompress(self, frame: Any, chunk: bytes, offset: int) -> bytes:
        try:
            return bytes(frame.decompress(chunk))
        except self._zstandard.ZstdError as error:
            raise DataError(f"{self.path}: broken compressed data after byte {offset}: {error}") from error

    def _ends_task(self, task: int, end: int) -> bool:
        # A frame cannot be read backwards; the offsets are checked by the scan that follows.
        return True

    def _line_number(self, end: int) -> int:
        return sum(1 for _, line_end in self._scan(0, end) if line_end <= end)
