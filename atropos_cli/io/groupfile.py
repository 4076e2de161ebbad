"""The writers of scored groups: groups.jsonl (or groups.jsonl.zst), appended, repaired and indexed; standard output.

Recovery after a crash: a torn end, and groups of a task whose final group is missing, go to
`<name>.torn`; then the file holds whole tasks only, and the run goes on behind them.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from atropos_cli.domain.group import ScoredGroup, parse_group_id
from atropos_cli.errors import DataError
from atropos_cli.io.append import AppendLog, move_tail
from atropos_cli.io.index import OffsetIndex, checksum
from atropos_cli.io.jsonvalue import encode, parse
from atropos_cli.ports.writer import Writer
from atropos_cli.streams import data_stream

log = logging.getLogger("atropos.run")

_NOTHING = b" \t\r\n\0"  # what a torn end may be followed by: a file system fills with zeros what it lost
_FRAME = b"\x28\xb5\x2f\xfd"  # how each zstd frame begins
_HEADER = re.compile(rb'\{"schema_version":\d+,"group_id":"([^"\\]+)","last":(true|false)[,}]')


def encode_group(group: ScoredGroup) -> bytes:
    """The group as one line of strict JSON, without the newline."""
    return encode(group)


def read_header(line: bytes) -> tuple[str, bool]:
    """(group id, last) of a line. Fast for lines we wrote; any other JSON object with the keys is read too.

    Raises ValueError for a line that is not a group.
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
        self._index = OffsetIndex(path.with_name(path.name + ".idx"), prefix=prefix)
        self._log: AppendLog | None = None

    def recover(self) -> Iterator[int]:
        """Yield the task of every complete task in the file, then cut off the incomplete rest and keep it aside.

        Raises DataError with file and line for a broken line other than the last, for a task without its last
        group that others follow, and for a group of another plan; the file is not touched then.
        """
        complete = size = count = 0
        if self.path.exists():
            status = self.path.stat()
            size = status.st_size
            for task, end in self._index.read(self.path, status):
                complete = end
                count += 1
                yield task
        self._index.begin(count)
        for task, end, check in self._scan(complete):
            complete = end
            self._index.add(task, end, check)
            yield task
        if complete < size and (side := move_tail(self.path, complete)):
            log.warning("%s: its end was torn; the %d bytes were moved to %s", self.path, size - complete, side.name)
        self._log = AppendLog(self.path, fsync=self._fsync)

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        """Append all groups of one task in one write."""
        assert self._log is not None, "recover() comes first"
        data = self._encode(b"".join(encode_group(group) + b"\n" for group in groups))
        self._log.write(data)
        task = self._task_of(groups[-1].group_id)
        self._index.add(task, self._log.size, checksum(task, data))

    def close(self) -> None:
        """Sync and close. Safe to call twice."""
        if self._log is not None:
            status = self._log.status()
            self._log.close()
            self._log = None
            self._index.seal(status)
        self._index.close()

    def _encode(self, lines: bytes) -> bytes:
        return lines

    def _scan(self, start: int) -> Iterator[tuple[int, int, int]]:
        """(task, end offset, checksum) of each complete task from `start`; stops silently before a torn end.

        Torn is what a crash can leave: a last line that is not blank and is not whole.
        """
        began: int | None = None
        broken: DataError | None = None
        crc = 0
        for line, end, raw in self._lines(start):
            crc = crc32(raw, crc)
            if broken is not None and line.strip(_NOTHING):
                raise broken
            if broken is not None or line.isspace():
                continue
            try:
                group_id, last = _read_whole(line)
            except ValueError as error:
                broken = self._broken(f"broken line: {error}", end)
                continue
            task = self._task_of(group_id)
            if began is not None and began != task:
                text = f"task {began} has no last group before group {group_id!r}"
                raise self._broken(text, end, hint=f"remove the lines of {self.prefix}-{began}, then resume")
            began = None if last else task
            if last:
                yield task, end, checksum(task, b"", crc)
                crc = 0

    def _lines(self, start: int) -> Iterator[tuple[bytes, int, bytes]]:
        """(line, end offset, bytes of the file it came with) from `start`, without an unfinished line at the end."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(start)
            end = start
            for line in file:
                if line.endswith(b"\n"):
                    end += len(line)
                    yield line, end, line

    def _broken(self, text: str, end: int, *, hint: str = "remove or mend that line, then resume") -> DataError:
        return DataError(f"{self.path}:{self._line_number(end)}: {text}", hint=f"the file was not changed; {hint}")

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


def _read_whole(line: bytes) -> tuple[str, bool]:
    """(group id, last) of a line that was read to its end. Raises ValueError for one that holds no whole group."""
    record, _ = parse(line)
    if not isinstance(record, dict) or not isinstance(record.get("group_id"), str):
        raise ValueError("not a group: no group_id")
    if not isinstance(record.get("rollouts"), list):
        raise ValueError(f"group {record['group_id']!r} has no rollouts")
    return record["group_id"], record.get("last", True) is not False


class ZstGroupFile(GroupFile):
    """The same, compressed: each task is one zstd frame, so a torn tail costs that task alone."""

    def __init__(self, path: Path, *, prefix: str, fsync: str = "interval") -> None:
        super().__init__(path, prefix=prefix, fsync=fsync)
        try:
            import zstandard
        except ModuleNotFoundError as error:
            raise DataError("writing .zst needs zstandard", hint="pip install 'atropos-cli[zst]'") from error
        self._zstandard = zstandard
        self._compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)

    def _encode(self, lines: bytes) -> bytes:
        return bytes(self._compressor.compress(lines))

    def _lines(self, start: int) -> Iterator[tuple[bytes, int, bytes]]:
        """As in a plain file. The offset of each line is that of its frame's end; the first line carries the frame."""
        end = start
        for frame, lines in self._frames(start):
            end += len(frame)
            raw = frame
            for line in lines.splitlines(keepends=True):
                yield line, end, raw
                raw = b""

    def _frames(self, start: int) -> Iterator[tuple[bytes, bytes]]:
        """(frame, its content) of each whole frame; a damaged one is torn when it is the last, else a DataError."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(start)
            end, rest = start, b""
            while True:
                frame = self._zstandard.ZstdDecompressor().decompressobj()
                raw, lines, problem = bytearray(), bytearray(), "the data is cut"
                while not frame.eof:
                    chunk = rest or file.read(1 << 20)
                    rest = b""
                    raw += chunk
                    try:
                        lines += frame.decompress(chunk)
                    except self._zstandard.ZstdError as error:
                        problem, chunk = str(error), b""
                    if not chunk:
                        self._check_last(file, bytes(raw), end, problem)
                        return
                rest = frame.unused_data
                del raw[len(raw) - len(rest) :]
                end += len(raw)
                yield bytes(raw), bytes(lines)

    def _check_last(self, file: BinaryIO, raw: bytes, offset: int, problem: str) -> None:
        """Raise DataError where another frame begins behind the damaged one, so that no crash can have made it."""
        tail = raw[1:]
        while _FRAME not in tail:
            chunk = file.read(1 << 20)
            if not chunk:
                return
            tail = tail[-3:] + chunk
        raise DataError(
            f"{self.path}: broken compressed data after byte {offset}: {problem}",
            hint="the file was not changed; `atropos filter --tolerant` takes the groups before it",
        )

    def _line_number(self, end: int) -> int:
        return sum(1 for _, line_end, _ in self._lines(0) if line_end <= end)


class JsonlWriter(Writer):
    """groups.jsonl in the run folder: one group a line."""

    name = "jsonl"
    filename = "groups.jsonl"
    _file_class: type[GroupFile] = GroupFile
    _file: GroupFile | None = None

    def open(self, folder: Path | None, *, prefix: str, fsync: str = "interval") -> Iterator[int]:
        if folder is None:
            raise DataError(f"writer {self.name!r} needs a run folder", hint="give --output a folder")
        self._file = self._file_class(folder / str(self.filename), prefix=prefix, fsync=fsync)
        return self._file.recover()

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        assert self._file is not None
        self._file.write(groups)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ZstWriter(JsonlWriter):
    """groups.jsonl.zst: the same lines, one zstd frame a task."""

    name = "jsonl.zst"
    filename = "groups.jsonl.zst"
    _file_class = ZstGroupFile


class StdoutWriter(Writer):
    """Groups as JSON lines on standard output, for a pipe. Nothing can be resumed."""

    name = "stdout"

    def open(self, folder: Path | None, *, prefix: str, fsync: str = "interval") -> Iterator[int]:
        return iter(())

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        # Past the stream's own buffer: a reader that goes away must be seen now, as BrokenPipeError.
        view = memoryview(b"".join(encode_group(group) + b"\n" for group in groups))
        fd = data_stream().fileno()
        while view:
            view = view[os.write(fd, view) :]

    def close(self) -> None:
        return None
