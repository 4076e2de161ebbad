"""Cut the inputs of a command into parts of about the same size, in their order.

Plain files of lines are cut anywhere between two lines; compressed files, tables and files of one array stay whole, so
many rows that are compressed are given as several files. A piece knows how many lines come before it: its rows are
named like those of the whole file. Counting them reads a file that is cut once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import DataError
from atropos_cli.io.sources import Source
from atropos_cli.io.values import keeps_to_lines

_HEAD = 1 << 16
_CHUNK = 1 << 20
_NEAR = 0.05
"""A file that begins or ends this near to a cut, in parts, is not cut there."""
_MAGIC = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def cut(sources: Sequence[Source], count: int) -> list[list[Source]]:
    """`count` parts, one after another the whole input; some are empty where there is little to cut."""
    sizes = [_size(source) for source in sources]
    share = max(1.0, sum(sizes) / count)
    parts: list[list[Source]] = [[] for _ in range(count)]
    offset = 0
    for source, size in zip(sources, sizes, strict=True):
        for piece in _pieces(source, offset, size, share):
            begin, end = (piece.begin, piece.end) if piece.end is not None else (0, size)
            middle = offset + (begin + end) / 2
            parts[min(count - 1, int(middle / share))].append(piece)
        offset += size
    return parts


def _size(source: Source) -> int:
    if source.path is None:
        raise DataError(f"{source.name} cannot be read by several processes", hint="write it to a file first")
    try:
        return source.path.stat().st_size
    except OSError as error:
        raise DataError(f"{source.name}: {error.strerror}") from error


def _pieces(source: Source, offset: int, size: int, share: float) -> Iterator[Source]:
    """The source, cut where the parts of the whole input meet."""
    first = int(offset / share) + 1
    wanted = [round(number * share - offset) for number in range(first, int((offset + size) / share) + 1)]
    wanted = [place for place in wanted if _NEAR * share < place < size - _NEAR * share]
    if not wanted or source.path is None or source.kind != "lines":
        yield source
        return
    with source.path.open("rb") as file:
        head = file.read(_HEAD)
        if head.startswith(_MAGIC) or not keeps_to_lines(head):
            yield source
            return
        begin = before = 0
        for place in wanted:
            end = _next_line(file, max(place, begin))
            if begin < end < size:
                yield replace(source, begin=begin, end=end, before=before)
                before += _lines(file, begin, end)
                begin = end
        yield replace(source, begin=begin, end=size, before=before) if begin else source


def _next_line(file: IO[bytes], place: int) -> int:
    """Where the first line begins that begins behind the place."""
    file.seek(place)
    while chunk := file.readline(_CHUNK):
        if chunk.endswith(b"\n"):
            break
    return file.tell()


def _lines(file: IO[bytes], begin: int, end: int) -> int:
    file.seek(begin)
    count = 0
    while begin < end and (chunk := file.read(min(_CHUNK, end - begin))):
        count += chunk.count(b"\n")
        begin += len(chunk)
    return count


def as_orders(sources: Sequence[Source]) -> list[JsonDict]:
    """The pieces as JSON, for the plan of a part."""
    return [
        {
            "name": source.name,
            "path": str(source.path.absolute() if source.path is not None else None),
            "kind": source.kind,
            "run": None if source.run is None else str(source.run),
            "piece": [source.begin, source.end, source.before],
        }
        for source in sources
    ]


def from_orders(orders: Sequence[Any]) -> list[Source]:
    """What `as_orders` was given. Raises KeyError, TypeError or ValueError for anything else."""
    found = []
    for order in orders:
        run = None if order["run"] is None else Path(order["run"])
        begin, end, before = order["piece"]
        end = None if end is None else int(end)
        found.append(Source(order["name"], Path(order["path"]), order["kind"], run, int(begin), end, int(before)))
    return found
