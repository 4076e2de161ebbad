"""Random access to the rows of a source: an index of where each line stands, nothing parsed beforehand.

Files of one value a line are read in place, and may grow meanwhile. Everything else (compressed data, an array
over the whole file, tables, standard input) is first copied to an unnamed temporary file, one row a line.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterator
from typing import IO, Any

from atropos_cli.sdk.data import Source, dump_json, keeps_to_lines, read_values, table_rows

_CHUNK = 1 << 22
_HEAD = 1 << 16
_BOM = b"\xef\xbb\xbf"


class Rows:
    """The rows of one source. Reading is safe from several threads; `refresh` is for one at a time.

    grows: the file is the source itself. left_out: values that were no rows when a copy was made.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.left_out = 0
        self._starts = array("Q")
        self._ends = array("Q")
        self._numbers = array("Q")
        self._line = 0
        self._scanned = 0
        self._file, self.grows, numbers = self._open()
        self.refresh()
        if numbers is not None:
            self._numbers = numbers

    def __len__(self) -> int:
        return len(self._starts)

    def row(self, index: int) -> bytes:
        """The bytes of a row, without the newline."""
        start = self._starts[index]
        return os.pread(self._file.fileno(), self._ends[index] - start, start)

    def number(self, index: int) -> int:
        """Its line (or element) in the source, from 1."""
        return self._numbers[index]

    @property
    def size(self) -> int:
        """Bytes that are indexed."""
        return self._scanned

    def refresh(self) -> None:
        """Index what was appended since. A last line without a newline counts, and is looked at again when it grew."""
        fd = self._file.fileno()
        size = os.fstat(fd).st_size
        if size <= self._scanned:
            return
        if self._starts and self._ends[-1] == self._scanned:
            self._ends.pop()
            self._numbers.pop()
            self._scanned = self._starts.pop()
            self._line -= 1
        if self._scanned == 0 and os.pread(fd, len(_BOM), 0) == _BOM:
            self._scanned = len(_BOM)
        for start, end in _lines(fd, self._scanned, size):
            self._line += 1
            if os.pread(fd, min(end - start, 256), start).strip():
                self._starts.append(start)
                self._ends.append(end)
                self._numbers.append(self._line)
        self._scanned = size

    def close(self) -> None:
        self._file.close()

    def _open(self) -> tuple[IO[bytes], bool, array[int] | None]:
        """(file to read rows from, is it the source itself, the rows' numbers in the source if not their lines)."""
        source = self.source
        if source.kind != "lines":
            copy, numbers = self._copied(table_rows(source))
            return copy, False, numbers
        stream = source.open()
        head = stream.read(_HEAD) if stream.seekable() else b""
        if stream.seekable() and keeps_to_lines(head):
            return stream, True, None
        if stream.seekable():
            stream.seek(0)
            plain: IO[bytes] = stream
        else:
            plain = self._spooled(stream)
        with plain:
            head = plain.read(_HEAD)
            plain.seek(0)
            if not keeps_to_lines(head):
                copy, numbers = self._copied(self._values(plain))
                return copy, False, numbers
            if plain is not stream:
                return os.fdopen(os.dup(plain.fileno()), "rb"), False, None
        raise AssertionError("a stream that can seek was looked at before")

    def _spooled(self, stream: IO[bytes]) -> IO[bytes]:
        """A stream that cannot seek, as a temporary file."""
        copy = tempfile.TemporaryFile(prefix="atropos-view-")  # noqa: SIM115 (lives as long as the rows)
        while chunk := stream.read(_CHUNK):
            copy.write(chunk)
        if getattr(getattr(stream, "raw", None), "problem", None):
            self.left_out += 1  # compressed data that ends early
        if self.source.path is not None:
            stream.close()
        copy.seek(0)
        return copy

    def _values(self, file: IO[bytes]) -> Iterator[tuple[int, Any]]:
        for item in read_values(file):
            if item.problem is None and isinstance(item.value, dict):
                yield item.number, item.value
            else:
                self.left_out += 1

    def _copied(self, values: Iterator[tuple[int, Any]]) -> tuple[IO[bytes], array[int]]:
        """Values as lines of a temporary file, and their numbers."""
        numbers = array("Q")
        copy = tempfile.TemporaryFile(prefix="atropos-view-")  # noqa: SIM115 (lives as long as the rows)
        for number, value in values:
            copy.write(dump_json(value) + b"\n")
            numbers.append(number)
        copy.flush()
        return copy, numbers


def _lines(fd: int, position: int, size: int) -> Iterator[tuple[int, int]]:
    """(start, end) of each line from a position on; the end is before the newline."""
    start = position
    while position < size:
        chunk = os.pread(fd, min(_CHUNK, size - position), position)
        if not chunk:
            break
        found = chunk.find(b"\n")
        while found >= 0:
            yield start, position + found
            start = position + found + 1
            found = chunk.find(b"\n", found + 1)
        position += len(chunk)
    if start < size:
        yield start, size
