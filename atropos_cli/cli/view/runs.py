"""A run to look at: its groups by position, read when they are asked for, and searched in bounded steps."""

from __future__ import annotations

import re
import threading
import time
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from atropos_cli.cli.view.rows import Rows
from atropos_cli.errors import DataError
from atropos_cli.io.formats import FORMATS, Format, RowError, detect, read_as
from atropos_cli.io.grouping import joined
from atropos_cli.io.jsonvalue import NotJson, kind_of, parse
from atropos_cli.io.lost import LostGroups
from atropos_cli.io.readers import pick_format
from atropos_cli.io.records import Record, StoredRollout, text_of
from atropos_cli.io.rundir import being_written
from atropos_cli.io.sources import Source

AUTO_GROUP = 64 << 20
"""Rows of single rollouts are joined by task without being asked up to this many bytes: all must be read for it."""

_LOOK = 200
_CACHE = 32
_TEXT = 20_000
_PLAIN = re.compile(r"[A-Za-z0-9 _.,:;+*=()\[\]{}!?'-]+")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What stands in the place of a group that cannot be read."""

    where: str
    problem: str
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for. The conditions on rewards, reasons and failures must hold for one and the same rollout."""

    text: str = ""
    env: str = ""
    stop: str = ""
    low: float | None = None
    high: float | None = None
    failed: bool = False

    def __bool__(self) -> bool:
        return self != Query()

    def may_match(self, row: bytes) -> bool:
        """False when the row's bytes rule a match out: much cheaper than parsing it."""
        if self.failed and b'"failure"' not in row:
            return False
        if b"\\u00" in row:  # a writer that escapes plain letters
            return True
        if self.env and _PLAIN.fullmatch(self.env) and self.env.encode() not in row:
            return False
        return not (self.text and _PLAIN.fullmatch(self.text) and self.text.lower().encode() not in row.lower())

    def matches(self, record: Record) -> bool:
        """Is it a group to show?"""
        if self.env and self.env != (record.env or record.task_name):
            return False
        if (self.stop or self.failed or self.low is not None or self.high is not None) and not any(
            map(self._matches_rollout, record.rollouts)
        ):
            return False
        return not self.text or self.text.lower() in _searched(record)

    def _matches_rollout(self, rollout: StoredRollout) -> bool:
        if self.failed and rollout.failure is None:
            return False
        if self.stop and self.stop not in (rollout.stop_reason, rollout.finish_reason):
            return False
        if self.low is None and self.high is None:
            return True
        score = rollout.score
        return (
            score is not None and (self.low is None or score >= self.low) and (self.high is None or score <= self.high)
        )


def _searched(record: Record) -> str:
    """All text of a record that is searched, in lower case."""
    parts = [record.id, record.task_id or "", record.task_name or ""]
    seen: set[int] = set()
    for messages in (record.prompt, *(rollout.messages for rollout in record.rollouts)):
        for message in messages:
            if id(message) in seen:
                continue
            seen.add(id(message))
            parts.append(text_of(message))
            for key in ("reasoning", "tool_calls"):
                if message.get(key):
                    parts.append(str(message[key]))
    return "\n".join(parts).lower()


class Run:
    """The groups of some sources, and behind them the tasks of runs that have none. `name` is what the user gave."""

    def __init__(
        self, name: str, sources: Sequence[Source], *, form: str | None = None, group: bool | None = None
    ) -> None:
        self.name = name
        self._format = pick_format(form)
        self._rows = [Rows(source) for source in sources]
        self._begins = list(accumulate((len(rows) for rows in self._rows), initial=0))[:-1]
        self._cache: OrderedDict[int, Record | Unreadable] = OrderedDict()
        self._lock = threading.Lock()
        self._groups: list[array[int]] | None = None
        first = self._first()
        of_task = first is not None and _is_row(first) and first.task_id is not None
        if group or (group is None and of_task and self.size <= AUTO_GROUP):
            self._join_rows()
        elif group is None and of_task:
            self.note = "each row is shown by itself: --group joins the rows of a task"
        self._lost = self._find_lost(sources)

    note = ""
    _lost: Sequence[Record] = ()

    def __len__(self) -> int:
        return self._written + len(self._lost)

    @property
    def _written(self) -> int:
        return len(self._groups) if self._groups is not None else sum(map(len, self._rows))

    @property
    def size(self) -> int:
        """Bytes of all rows."""
        return sum(rows.size for rows in self._rows)

    @property
    def left_out(self) -> int:
        return sum(rows.left_out for rows in self._rows)

    @property
    def grows(self) -> bool:
        """May there be more groups later?"""
        return self._groups is None and len(self._rows) == 1 and self._rows[0].grows and not self._lost

    @property
    def files(self) -> list[str]:
        return [rows.source.name for rows in self._rows]

    @property
    def sources(self) -> list[Source]:
        return [rows.source for rows in self._rows]

    def refresh(self) -> None:
        """Take in what was appended to the file."""
        if self.grows:
            with self._lock:
                self._rows[0].refresh()

    def close(self) -> None:
        for rows in self._rows:
            rows.close()

    def group(self, position: int) -> Record | Unreadable:
        """The group at a position from 0. Raises IndexError."""
        if not 0 <= position < len(self):
            raise IndexError(position)
        with self._lock:
            found = self._cache.get(position)
            if found is not None:
                self._cache.move_to_end(position)
                return found
        found = self._read(position)
        last = position == len(self) - 1
        if not last:  # the last row of a growing file may be half a row
            with self._lock:
                self._cache[position] = found
                while len(self._cache) > _CACHE:
                    self._cache.popitem(last=False)
        return found

    def groups(self) -> Iterator[tuple[int, Record | Unreadable]]:
        """All groups with their positions, without keeping them."""
        for position in range(len(self)):
            yield position, self._read(position)

    def search(
        self, query: Query, start: int, limit: int, seconds: float
    ) -> tuple[list[tuple[int, Record | Unreadable]], int]:
        """(matching groups from `start` on, where to go on): at most `limit`, and about so many seconds of looking."""
        until = time.monotonic() + seconds
        found: list[tuple[int, Record | Unreadable]] = []
        position = start
        while position < len(self) and len(found) < limit:
            if self._groups is not None or position >= self._written or query.may_match(self._row(position)):
                group = self._read(position)
                if not query or (isinstance(group, Record) and query.matches(group)):
                    found.append((position, group))
            position += 1
            if time.monotonic() > until:
                break
        return found, position

    def _row(self, index: int) -> bytes:
        rows, index = self._place(index)
        return rows.row(index)

    def _place(self, index: int) -> tuple[Rows, int]:
        if len(self._rows) == 1:
            return self._rows[0], index
        file = bisect_right(self._begins, index) - 1
        return self._rows[file], index - self._begins[file]

    def _find_lost(self, sources: Sequence[Source]) -> Sequence[Record]:
        """The tasks of which every rollout failed; of a run that is being written a note says so instead."""
        lost = LostGroups(sources)
        if not lost.candidates:
            return ()
        written = sum(map(len, self._rows))
        for index in range(written):
            rows, place = self._place(index)
            lost.seen_row(rows.source.name, rows.row(place))
        found = list(lost.remaining())
        if found and any(source.run is not None and being_written(source.run) for source in sources):
            self.note = f"{len(found)} tasks failed as a whole so far: they are listed when the run has ended"
            return ()
        return found

    def _read(self, position: int) -> Record | Unreadable:
        if position >= self._written:
            return self._lost[position - self._written]
        if self._groups is None:
            return self._read_row(position)
        records = [self._read_row(index) for index in self._groups[position]]
        if len(records) == 1:
            return records[0]
        return joined([record for record in records if isinstance(record, Record)])

    def _read_row(self, index: int) -> Record | Unreadable:
        rows, index = self._place(index)
        raw, name, number = rows.row(index), rows.source.name, rows.number(index)
        try:
            value, _ = parse(raw)
            if not isinstance(value, dict):
                raise NotJson(f"expected an object, found {kind_of(value)}")
            form: Format | None = self._format or detect(value)
            if form is None:
                raise NotJson(f"none of the formats {', '.join(FORMATS)}")
            return read_as(form, value, name, number)
        except (NotJson, RowError) as error:
            return Unreadable(f"{name}:{number}", str(error), raw[:_TEXT].decode("utf-8", "replace"))

    def _first(self) -> Record | None:
        """The first usable record. Raises DataError when the file begins with many rows that are none."""
        problem: Unreadable | None = None
        for index in range(min(_LOOK, sum(map(len, self._rows)))):
            record = self._read_row(index)
            if isinstance(record, Record):
                return record
            problem = problem or record
        if problem is not None:
            raise DataError(
                f"{self.name}: no usable rows; the first one, {problem.where}: {problem.problem}",
                hint="--format names a format if it was not recognised",
            )
        if self._rows and self._rows[0].grows and self._rows[0].source.run is not None:
            return None  # a run that has just begun, or in which everything failed
        raise DataError(f"{self.name}: no rows", hint="is it the right file?")

    def _join_rows(self) -> None:
        """Put rows of one rollout into groups by task, in the order of each task's first row."""
        groups: dict[str, array[int]] = {}
        for index in range(sum(map(len, self._rows))):
            record = self._read_row(index)
            alone = not isinstance(record, Record) or not _is_row(record)
            key = f"\0{index}" if alone or not isinstance(record, Record) else record.task_key
            groups.setdefault(key, array("Q")).append(index)
        self._groups = list(groups.values())


def _is_row(record: Record) -> bool:
    return not FORMATS[record.format].group and len(record.rollouts) == 1
