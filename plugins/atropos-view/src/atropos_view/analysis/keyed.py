"""Totals by key (task, episode) for any number of keys: in memory up to a limit, in temporary files beyond it."""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any, Generic, Protocol, Self, TypeVar

from atropos_cli.sdk.data import dump_json, parse_json

LIMIT = 100_000
_PARTS = 64


class Total(Protocol):
    """What is kept for a key: it can take in another total of the same key, and be stored."""

    def merge(self, other: Self) -> None: ...
    def as_row(self) -> list[Any]: ...
    @classmethod
    def from_row(cls, row: list[Any]) -> Self: ...


T = TypeVar("T", bound=Total)


class KeyedTotals(Generic[T]):
    """`get(key)` gives the total to add to; `items()` gives each key once, with everything that was added.

    Beyond `limit` keys the totals so far are written to one of 64 temporary files by the key's hash; at the end
    one file at a time is read and merged, so memory holds `limit` totals and a 64th of all. Use as a context.
    """

    def __init__(self, kind: type[T], limit: int = LIMIT) -> None:
        self._kind = kind
        self._limit = limit
        self._held: dict[str, T] = {}
        self._files: list[IO[bytes]] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def get(self, key: str) -> T:
        total = self._held.get(key)
        if total is None:
            if len(self._held) >= self._limit:
                self._spill()
            total = self._held[key] = self._kind()
        return total

    def put(self, key: str, total: T) -> None:
        """Add a later total of a key."""
        held = self._held.get(key)
        if held is not None:
            held.merge(total)
            return
        if len(self._held) >= self._limit:
            self._spill()
        self._held[key] = total

    def items(self) -> Iterator[tuple[str, T]]:
        """Every key once; in order of first appearance unless some were spilled."""
        if not self._files:
            yield from self._held.items()
            return
        self._spill()
        for file in self._files:
            file.seek(0)
            merged: dict[str, T] = {}
            for line in file:
                key, row = parse_json(line)[0]
                total = self._kind.from_row(row)
                if key in merged:
                    merged[key].merge(total)
                else:
                    merged[key] = total
            yield from merged.items()

    def _spill(self) -> None:
        if not self._files:
            for _ in range(_PARTS):
                file = tempfile.TemporaryFile(prefix="atropos-")  # noqa: SIM115 (the stack closes it)
                self._files.append(self._stack.enter_context(file))
        for key, total in self._held.items():
            part = zlib.crc32(key.encode("utf-8", "replace")) % _PARTS
            self._files[part].write(dump_json([key, total.as_row()]) + b"\n")
        self._held.clear()
