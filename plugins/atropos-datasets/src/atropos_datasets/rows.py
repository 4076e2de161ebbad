"""Rows of a data file by index: JSON lines through an index of offsets, JSON arrays, parquet.

A row is read when it is asked for. JSON lines cost 8 bytes of memory a row, whatever the rows hold; a
compressed file is unpacked to a temporary file first. An array of JSON and a parquet file are held in memory.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from pydantic_core import from_json

from atropos_cli.sdk import DataError, JsonDict, clean_text
from atropos_cli.sdk.data import local_copy

_CHUNK = 1 << 20
_BATCH = 1000


class Rows(Protocol):
    """Rows by index. `where` names a row in messages; `scan` reads the named top-level fields of all rows, in order.

    fields: the columns of a table, None where every row has its own.
    """

    name: str
    fields: Sequence[str] | None

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> JsonDict: ...
    def where(self, index: int) -> str: ...
    def scan(self, fields: Sequence[str]) -> Iterator[JsonDict]: ...
    def close(self) -> None: ...


def open_file(name: str) -> Rows:
    """The rows of a local file; its first bytes tell what it is. Raises DataError."""
    path = Path(local_copy(name)).expanduser()
    try:
        file: IO[bytes] = path.open("rb")
    except OSError as error:
        raise DataError(
            f"{name}: {error.strerror}", hint="--path FILE: JSON lines, a JSON array, or parquet"
        ) from error
    head = file.read(4)
    file.seek(0)
    if head == b"PAR1":
        file.close()
        return _parquet(name, path)
    if head == b"\x28\xb5\x2f\xfd":
        file.close()
        raise DataError(f"{name}: zstd files are not read here", hint=f"zstd -d {name}")
    if head[:2] == b"\x1f\x8b":
        file = _unpacked(name, file)
    if _first_byte(file) == b"[":
        with file:
            return _array(name, file.read())
    return JsonLines(name, file)


class JsonLines:
    """One JSON object a line; blank lines do not count. Takes over the file, and reads it by offset only."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self.name = name
        self.fields: Sequence[str] | None = None
        self._file = file
        self._offsets = array("Q")
        position = 0
        for line in file:
            if not line.isspace():
                self._offsets.append(position)
            position += len(line)
        self._end = position

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> JsonDict:
        begin = self._offsets[index]
        end = self._offsets[index + 1] if index + 1 < len(self._offsets) else self._end
        return self._parse(os.pread(self._file.fileno(), end - begin, begin), index)

    def scan(self, fields: Sequence[str]) -> Iterator[JsonDict]:
        """Every row whole: picking fields would not make parsing cheaper."""
        return (self[index] for index in range(len(self)))

    def where(self, index: int) -> str:
        """file:line, counted when it is asked for."""
        end, lines, position = self._offsets[index], 1, 0
        while chunk := os.pread(self._file.fileno(), min(_CHUNK, end - position), position):
            lines += chunk.count(b"\n")
            position += len(chunk)
        return f"{self.name}:{lines}"

    def close(self) -> None:
        self._file.close()

    def _parse(self, line: bytes, index: int) -> JsonDict:
        if index == 0:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            row = parse(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.where(index)}: not a line of JSON: {error}") from None
        if not isinstance(row, dict):
            raise DataError(f"{self.where(index)}: a {type(row).__name__}, not a JSON object with fields")
        return row


class ListRows:
    """Rows that are held in memory."""

    def __init__(self, name: str, rows: Sequence[JsonDict]) -> None:
        self.name = name
        self.fields: Sequence[str] | None = None
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> JsonDict:
        return self._rows[index]

    def where(self, index: int) -> str:
        return f"{self.name}, row {index}"

    def scan(self, fields: Sequence[str]) -> Iterator[JsonDict]:
        return iter(self._rows)

    def close(self) -> None:
        return None


class TableRows:
    """Rows of an Arrow table, as plain JSON values."""

    def __init__(self, name: str, table: Any) -> None:
        self.name = name
        self.fields: Sequence[str] | None = list(table.column_names)
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> JsonDict:
        return plain_row(self._table.slice(index, 1).to_pylist()[0])

    def where(self, index: int) -> str:
        return f"{self.name}, row {index}"

    def scan(self, fields: Sequence[str]) -> Iterator[JsonDict]:
        known = [name for name in fields if name in self._table.column_names]
        for batch in self._table.select(known).to_batches(max_chunksize=_BATCH):
            yield from map(plain_row, batch.to_pylist())

    def close(self) -> None:
        return None


def parse(text: bytes) -> Any:
    """A JSON value; lone halves of surrogate pairs become U+FFFD. Raises ValueError, for NaN and Infinity too."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        if b"\\u" not in text:
            raise
    return _clean(json.loads(text, parse_constant=_refuse))


def plain_row(row: dict[str, Any]) -> JsonDict:
    """A row of a table as JSON: dates and decimals as text, bytes as text where they are UTF-8."""
    return {key: _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _first_byte(file: IO[bytes]) -> bytes:
    """The first byte that is no white space, with the file back at its start."""
    start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    file.seek(0)
    return start


def _unpacked(name: str, file: IO[bytes]) -> IO[bytes]:
    """The content of a gzip file in a temporary file that no one else sees: lines are read by offset."""
    unpacked = tempfile.TemporaryFile(prefix="atropos-dataset-")  # noqa: SIM115 - JsonLines closes it
    try:
        with file, gzip.open(file) as stream:
            shutil.copyfileobj(stream, unpacked, _CHUNK)
    except (OSError, EOFError, zlib.error) as error:
        unpacked.close()
        raise DataError(f"{name}: not a whole gzip file: {error}") from error
    unpacked.seek(0)
    return unpacked


def _array(name: str, text: bytes) -> ListRows:
    try:
        rows = parse(text.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not a JSON array: {error}") from None
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"{name}, row {index}: a {type(row).__name__}, not a JSON object with fields")
    return ListRows(name, rows)


def _parquet(name: str, path: Path) -> TableRows:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise DataError(
            f"{name}: reading parquet needs pyarrow", hint="pip install 'atropos-datasets[parquet]'"
        ) from error
    try:
        return TableRows(name, pq.read_table(path, memory_map=True))
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{name}: not a readable parquet file: {error}") from error
