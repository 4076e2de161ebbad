"""A JSON-lines file of training steps that a resumed run continues: torn ends are healed, steps never doubled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import DataError
from atropos_cli.io.append import AppendLog, move_tail
from atropos_cli.io.jsonvalue import parse

Order = tuple[int, int]
"""Step, and 1 for results of an evaluation after that step, else 0: lines are in this order."""


class StepLog:
    """Appends records that carry a step.

    The first record that is written to a file with earlier records decides where the run continues: earlier
    lines that do not stand before it are of steps that are made again, and are moved to `<name>.torn`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        heal(path)
        self._begun = not (path.exists() and path.stat().st_size)
        self._log: AppendLog | None = None

    def write(self, record: JsonDict, order: Order) -> None:
        """Append one record. Raises DataError when the disk is full."""
        if not self._begun:
            self.cut(order)
        if self._log is None:
            self._log = AppendLog(self.path)
        # NaN is no JSON; records hold None for it, and json says so if one slips through.
        self._log.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")

    def cut(self, order: Order) -> None:
        """Move the records that are not before `order` out of the file."""
        self._begun = True
        if not self.path.exists():
            return
        offset = 0
        with self.path.open("rb") as file:
            for line in file:
                record = _parse(line) if line.endswith(b"\n") else None
                if line.strip() and (record is None or _order(record) >= order):
                    break
                offset += len(line)
        if offset < self.path.stat().st_size:
            if self._log is not None:
                self._log.close()
                self._log = None
            move_tail(self.path, offset)

    def close(self) -> None:
        """Safe to call twice."""
        if self._log is not None:
            self._log.close()
            self._log = None


def heal(path: Path) -> None:
    """Move what a crash left of an unfinished record, or of a damaged end, out of the file.

    Raises DataError for a broken line that records follow: no crash makes one, and they are not thrown away for it.
    """
    if not path.exists():
        return
    offset = broken = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            whole = line.endswith(b"\n") and _parse(line) is not None
            if whole and broken:
                raise DataError(
                    f"{path}:{broken}: broken line",
                    hint="the file was not changed; remove or mend that line, then resume",
                )
            if whole:
                offset += len(line)
            elif not broken and line.strip():
                broken = number
            elif not broken:
                offset += len(line)
    if offset < path.stat().st_size:
        move_tail(path, offset)


def read_steps(path: Path) -> Iterator[JsonDict]:
    """The records of a file, up to its torn end if it has one; also while a run writes it."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            record = _parse(line) if line.endswith(b"\n") else None
            if record is not None:
                yield record
            elif line.strip():
                return


def _parse(line: bytes) -> JsonDict | None:
    try:
        record, _ = parse(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and type(record.get("step")) is int else None


def _order(record: JsonDict) -> Order:
    step = record["step"]
    assert isinstance(step, int)
    return step, int(record.get("kind") == "eval" or record.get("suite") is not None)
