"""A page without a server: the groups of a run in one file, in compressed blocks that are unpacked as needed.

Two blocks for every few hundred groups: a small one with what the list shows, which the page reads when it opens, and
one with the groups themselves; beside them one with tokens. Blocks are written as they are filled, so that memory does
not grow with the run.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from atropos_cli.cli.view import payload
from atropos_cli.cli.view.library import Library
from atropos_cli.cli.view.page import data_element, exported_page, script_json
from atropos_cli.cli.view.runs import Unreadable
from atropos_cli.errors import DataError
from atropos_cli.paths import real_target
from atropos_cli.redaction import redacted_bytes

BYTES = 1_000_000_000
"""Most bytes of a page; browsers hold all of it in memory."""

TOKEN_BYTES = 100_000_000
"""Most bytes of tokens in a page: those of later groups are left out."""

_TOKENS = 2_000
_BLOCK = 1_500_000
_BLOCK_GROUPS = 500
_LEVEL = 5


@dataclass(frozen=True, slots=True)
class Exported:
    """How many groups the page holds, of how many, how many of them with all their tokens, and its size."""

    groups: int
    total: int
    with_tokens: int
    size: int


def export(
    library: Library, path: Path, limit: int | None = None, max_bytes: int = BYTES, token_bytes: int = TOKEN_BYTES
) -> Exported:
    """Write a page of all groups, or of `limit` (with two runs: of compared tasks). Raises DataError."""
    path = real_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            page = _Page(library, file, max_bytes, token_bytes)
            made = page.write(limit)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return made


class _Page:
    """A page that is being written."""

    def __init__(self, library: Library, file: BinaryIO, max_bytes: int, token_bytes: int) -> None:
        self._library = library
        self._file = file
        self._max_bytes = max_bytes
        self._token_bytes = token_bytes
        self._size = 0
        self._blocks: list[dict[str, int]] = []
        self._clear()

    def _clear(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._rows: list[dict[str, Any]] = []
        self._groups: list[str] = []
        self._tokens: list[str] = []
        self._filled = 0

    def write(self, limit: int | None) -> Exported:
        data = self._library.run({})
        diff = self._library.diff
        if diff is not None:
            diff.compare()
            data["counts"] = diff.counts()
        before, behind = exported_page(self._library.title)
        self._put(before.encode("utf-8", "replace"))
        held, with_tokens, total, wanted = 0, 0, *self._wanted(limit)
        for places, row in wanted:
            self._add(places, row)
            held += 1
            with_tokens += self._token_bytes > 0
            if self._filled >= _BLOCK or len(self._groups) >= _BLOCK_GROUPS:
                self._flush()
                if self._size > self._max_bytes:
                    break
        self._flush()
        data.update(blocks=self._blocks, held=held, total=total)
        meta = f'<script type="application/json" id="data">{script_json(data)}</script>\n'
        self._put(redacted_bytes(meta.encode("utf-8", "replace")))
        self._put(behind.encode())
        return Exported(held, total, with_tokens, self._size)

    def _wanted(self, limit: int | None) -> tuple[int, Iterator[tuple[list[tuple[int, int]], dict[str, Any] | None]]]:
        """(how many there are, (places of the groups, row of the comparison) of each that is wanted)."""
        diff = self._library.diff
        if diff is None:
            total = len(self._library.runs[0])
            return total, (([(0, n)], None) for n in range(total if limit is None else min(limit, total)))
        rows, total = diff.rows("order", 0, 1 << 62 if limit is None else limit)
        return total, (([(i, row[key]) for i, key in enumerate("ab") if row[key] is not None], row) for row in rows)

    def _add(self, places: list[tuple[int, int]], row: dict[str, Any] | None) -> None:
        """Put a group (with two runs: a task's groups) into the block."""
        if row is not None:
            self._rows.append(row)
        for side, position in places:
            found = self._library.runs[side].group(position)
            text = _json(payload.group(position, found))
            self._groups.append(f'"{side}/{position}":{text}')
            self._filled += len(text)
            if side == 0:
                self._items.append(payload.summary(position, found))
            if not isinstance(found, Unreadable) and self._token_bytes > 0:
                self._tokens += self._tokens_of(side, position, found)

    def _tokens_of(self, side: int, position: int, found: Any) -> Iterator[str]:
        for rollout in found.rollouts[: payload.ROLLOUTS]:
            sequences = payload.tokens(found, rollout.index, self._library.decode, _TOKENS)
            if sequences:
                yield f'"{side}/{position}/{rollout.index}":{_json(sequences)}'

    def _flush(self) -> None:
        """Write the block."""
        if not self._groups:
            return
        number = len(self._blocks)
        self._block(f"i{number}", _json({"items": self._items, "rows": self._rows}))
        self._block(f"g{number}", "{" + ",".join(self._groups) + "}")
        before = self._size
        if self._tokens:
            self._block(f"t{number}", "{" + ",".join(self._tokens) + "}")
        self._token_bytes -= self._size - before
        self._blocks.append({"groups": len(self._groups), "tokens": len(self._tokens)})
        self._clear()

    def _block(self, name: str, text: str) -> None:
        packed = zlib.compress(redacted_bytes(text.encode("utf-8", "replace")), _LEVEL)
        self._put(data_element(name, packed).encode())

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._size += len(data)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
