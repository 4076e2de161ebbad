"""Choices between rows that lie in different parts of an input: duplicates, caps.

A part asks for a verdict on each row that has a key. In its first step it only leaves the keys; a launcher brings the
rows of a key together, and a function decides over them in the order of the whole input; in its second step the part
asks again, in the same order, and gets the verdicts. So the choice is the one that a single process makes.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import DataError, PluginError
from atropos_cli.io.parts import KEYS, Part
from atropos_cli.ports.launcher import KeyedJob

Row = tuple[int, bytes, bytes]
"""(place, key, payload)."""
_BATCH = 4096
_SHIFT = 40
"""place: number of the part, then that of the row in it."""
_VERDICT = struct.Struct("<QB")
_NAME = "verdicts.bin"


@dataclass(frozen=True, slots=True)
class Keyed:
    """what: the option, for messages. function: MODULE:NAME of what decides, see `KeyedJob`."""

    what: str
    function: str
    options: JsonDict = field(default_factory=dict)

    def job(self, files: Sequence[Path], out: Path) -> KeyedJob:
        """For a launcher."""
        return KeyedJob(files=tuple(map(str, files)), function=self.function, out=str(out), options=self.options)


class Choices(ABC):
    """What a part asks, row by row, in the same order in both steps. collects: in the first, all rows are kept."""

    collects: ClassVar[bool] = False

    @abstractmethod
    def ask(self, key: bytes, payload: bytes = b"") -> int:
        """The verdict on the next row; 0 keeps it."""

    def close(self) -> None:
        """All rows were asked for."""


class Collector(Choices):
    """Leaves the keys in the part's folder, and keeps every row."""

    collects = True

    def __init__(self, part: Part) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            raise PluginError(
                "comparing rows across shards needs pyarrow", hint="pip install 'atropos-cli[parquet]'"
            ) from error
        self._arrow: Any = pyarrow
        self._part = part
        self._schema = pyarrow.schema(
            [
                ("bucket", pyarrow.int32()),
                ("place", pyarrow.int64()),
                ("key", pyarrow.binary()),
                ("payload", pyarrow.binary()),
            ]
        )
        self._writer = pyarrow.parquet.ParquetWriter(part.folder / "keys.parquet", self._schema)
        self._rows: list[tuple[int, int, bytes, bytes]] = []
        self._place = part.index << _SHIFT

    def ask(self, key: bytes, payload: bytes = b"") -> int:
        bucket = int.from_bytes(blake2b(key, digest_size=4).digest(), "big") % self._part.buckets
        self._rows.append((bucket, self._place, key, payload))
        self._place += 1
        if len(self._rows) >= _BATCH:
            self._write()
        return 0

    def _write(self) -> None:
        columns = [list(column) for column in zip(*self._rows, strict=True)] or [[], [], [], []]
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._rows.clear()

    def close(self) -> None:
        self._write()
        self._writer.close()
        self._part.finish({})


class Told(Choices):
    """Verdicts as they were found."""

    def __init__(self, folder: Path) -> None:
        self._number = -1
        self._verdicts: dict[int, int] = {}
        path = folder / _NAME
        if path.exists():
            data = path.read_bytes()
            self._verdicts = dict(_VERDICT.iter_unpack(data))

    def ask(self, key: bytes, payload: bytes = b"") -> int:
        self._number += 1
        return self._verdicts.get(self._number, 0)


def choices(part: Part) -> Choices:
    """Those of the part's step."""
    return Collector(part) if part.step == KEYS else Told(part.folder)


def keys_of(folder: Path) -> list[Path]:
    """The keys that a part left."""
    path = folder / "keys.parquet"
    return [path] if path.exists() else []


def hand_out(found: Path, folders: Sequence[Path]) -> None:
    """Put the verdicts of all parts into the folders of the parts. Raises DataError."""
    for folder in folders:
        (folder / _NAME).unlink(missing_ok=True)
    files = sorted(found.rglob("*.parquet")) if found.exists() else []
    if not files:
        return
    import pyarrow.parquet

    for path in files:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1 << 16):
            by_part: dict[int, bytearray] = {}
            for place, verdict in zip(
                batch.column("place").to_pylist(), batch.column("verdict").to_pylist(), strict=True
            ):
                index, number = place >> _SHIFT, place & ((1 << _SHIFT) - 1)
                if not 0 <= index < len(folders):
                    raise DataError(f"{path}: a verdict on part {index} of {len(folders)}")
                by_part.setdefault(index, bytearray()).extend(_VERDICT.pack(number, verdict))
            for index, data in by_part.items():
                with (folders[index] / _NAME).open("ab") as file:
                    file.write(data)


def first_of_a_task(rows: Iterable[Row], options: JsonDict) -> list[tuple[int, int]]:
    """Decides for a cap: 1 for the rows of a key behind the first `limit` whose payload is not empty."""
    limit = int(str(options["limit"]))
    taken: dict[bytes, int] = {}
    found = []
    for place, key, payload in rows:
        if taken.get(key, 0) >= limit:
            found.append((place, 1))
        elif payload:
            taken[key] = taken.get(key, 0) + 1
    return found
