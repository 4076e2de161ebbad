"""Join rows of one rollout each (tau-bench trials, ShareGPT rows, completions) into groups by task."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from atropos_cli.io.formats import FORMATS
from atropos_cli.io.formats.common import whole_rows
from atropos_cli.io.jsonvalue import dump, parse
from atropos_cli.io.records import Record


def joined(records: list[Record]) -> Record:
    """One record with the rollouts of several that have one each; it is written back as the rows it came from."""
    first = records[0]
    if len(records) == 1:
        return first
    rollouts = [rollout for record in records for rollout in record.rollouts]
    first.non_finite = [i for i, record in enumerate(records) if record.non_finite]
    for index, rollout in enumerate(rollouts):
        rollout.index = index
    first.rollouts = rollouts
    if first.task_id is not None:
        first.id = first.task_id
    first.cut = whole_rows
    first.line_bytes = None
    return first


def group_rows(
    records: Iterable[Record], *, key: Callable[[Record], str] | None = None, folder: Path | None = None
) -> Iterator[Record]:
    """Records of row formats joined by `key` (default: Record.task_key), in the order of each group's first row.

    Rows of one group may be far apart: they wait in a temporary file in `folder`, 8 bytes a row stay in memory.
    Records of group formats and preference pairs pass through as they come.
    """
    key = key or (lambda record: record.task_key)
    places: dict[bytes, array[int]] = {}
    with tempfile.TemporaryFile(dir=folder, prefix="atropos-group-") as file:
        for record in records:
            if FORMATS[record.format].group or len(record.rollouts) != 1:
                yield record
                continue
            digest = blake2b(key(record).encode("utf-8", "replace"), digest_size=12).digest()
            places.setdefault(digest, array("Q")).append(file.tell())
            row = record.line_bytes or dump(record.raw)
            head = dump([record.format, record.source, record.line])
            file.write(head + b"\n" + row + b"\n")
        for offsets in places.values():
            rows = []
            for offset in offsets:
                file.seek(offset)
                name, source, line = parse(file.readline())[0]
                text = file.readline().rstrip(b"\n")
                row, strict = parse(text)
                one = FORMATS[name].read(row, source, line)
                one.line_bytes = text if strict else None
                rows.append(one)
            yield joined(rows)
