"""One part of a command over stored rows that several processes share: its plan and its results.

    FOLDER/shards/I/plan.json      the words of the command, the pieces of its input, the step
    FOLDER/shards/I/rows.jsonl     its rows, a letter before each: t (train) or v (validation)
    FOLDER/shards/I/result-STEP.json   written last: the part is done

Only whole parts count: one without a result is made again. The parts in their order are the result of one process.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from atropos_cli.errors import DataError
from atropos_cli.io.append import atomic_write, write_orders
from atropos_cli.io.cutting import as_orders, from_orders
from atropos_cli.io.jsonvalue import dump, read_object
from atropos_cli.io.scorecolumns import ScoreColumns
from atropos_cli.io.sources import Source
from atropos_cli.io.writers_out import OutputSpec, split_of

COMMAND = "rows"
"""What plan.json of a part names as its command."""
ROWS, KEYS = "rows", "keys"
"""The steps: the rows themselves; before it, where rows are compared across parts, the keys."""
_ROWS_FILE = "rows.jsonl"
_LETTERS = {"train": b"t", "validation": b"v"}
_SPLITS = {ord(letter): split for split, letter in _LETTERS.items()}


@dataclass(frozen=True, slots=True)
class Part:
    """Part `index` of `count`. words: the command. digest: of all parts' plan. options: of the command's options.

    buckets: into how many the keys are put that rows are compared by.
    """

    folder: Path
    index: int
    count: int
    step: str
    words: tuple[str, ...]
    sources: tuple[Source, ...]
    digest: str
    options: str
    buckets: int = 1

    def write(self) -> None:
        """Leave the plan in the part's folder. Raises ConfigError when it would contain a secret."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = {
            "command": COMMAND,
            "digest": self.digest,
            "part": [self.index, self.count],
            "step": self.step,
            "words": list(self.words),
            "options": self.options,
            "buckets": self.buckets,
            "sources": as_orders(self.sources),
        }
        write_orders(self.folder / "plan.json", json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n")

    @classmethod
    def read(cls, path: Path) -> Part:
        """What `write` left. Raises DataError."""
        try:
            data = read_object(path)
            index, count = map(int, data["part"])
            return cls(
                folder=path.parent,
                index=index,
                count=count,
                step=str(data["step"]),
                words=tuple(map(str, data["words"])),
                sources=tuple(from_orders(data["sources"])),
                digest=str(data["digest"]),
                options=str(data["options"]),
                buckets=int(data["buckets"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not a plan of a part: {error}", hint="give the first command again") from error

    @property
    def result_path(self) -> Path:
        return self.folder / f"result-{self.step}.json"

    def result(self) -> dict[str, Any] | None:
        """What the part has counted; None when this step is not done, is of another plan, or its rows are damaged."""
        try:
            found = read_object(self.result_path)
            whole = self.step != ROWS or (self.folder / _ROWS_FILE).stat().st_size == found["output"]["bytes"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if whole and found.get("digest") == self.digest else None

    def finish(self, result: Mapping[str, Any]) -> None:
        """The step is done. Everything else of it is on the disk by now."""
        data = {**result, "digest": self.digest, "used": _used()}
        atomic_write(self.result_path, json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace"))


def _used() -> tuple[float, float]:
    """CPU seconds and the most megabytes of this process and of those that it started."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both), max(used.ru_maxrss for used in both) / 1024


class PartRows:
    """The rows of a part, written as `DataOutput` writes those of a whole command."""

    def __init__(self, folder: Path, spec: OutputSpec | None) -> None:
        self.path = folder / _ROWS_FILE
        self.rows = 0
        self._spec = spec
        self._columns: set[str] = set()
        self._scores = ScoreColumns()
        self._file: IO[bytes] = self.path.open("wb", buffering=1 << 20)

    def write(self, row: dict[str, Any] | bytes, *, task: str = "") -> None:
        """Add a row; in a dry run it is only counted."""
        self.rows += 1
        if self._spec is None:
            return
        if not isinstance(row, bytes):
            self._columns.update(row)
            self._scores.see(row)
            row = dump(row)
        letter = _LETTERS[split_of(task, self._spec.validation, self._spec.split_seed)]
        self._file.write(letter + row + b"\n")

    def close(self) -> dict[str, Any]:
        """Make the rows durable; what the whole output needs to know of them."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
        finally:
            self._file.close()
        return {"rows": self.rows, "bytes": size, "columns": sorted(self._columns), "scores": self._scores.columns}


def part_rows(part: Part) -> Iterator[tuple[bytes, str]]:
    """(line, split) of each row of a part that is done."""
    with (part.folder / _ROWS_FILE).open("rb", buffering=1 << 20) as file:
        for line in file:
            yield line[1:-1], _SPLITS[line[0]]
