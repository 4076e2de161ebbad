"""A page without a server: the first groups of a run, with everything the page needs, in one file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from atropos_cli.cli.view import payload
from atropos_cli.cli.view.library import Library
from atropos_cli.cli.view.page import exported_page
from atropos_cli.cli.view.runs import Unreadable

GROUPS = 200
BYTES = 25_000_000
"""Most bytes of data in a page; browsers become slow beyond."""

_TOKENS = 2_000


@dataclass(frozen=True, slots=True)
class Exported:
    """The page, how many groups it holds, and of how many."""

    page: str
    groups: int
    total: int


def export(library: Library, limit: int = GROUPS, max_bytes: int = BYTES) -> Exported:
    """A page with at most `limit` groups (with two runs: compared tasks, the largest losses first)."""
    data = library.run({})
    data["items"], data["groups"], data["tokens"] = [], {}, {}
    used = 0
    if library.diff is None:
        total = len(library.runs[0])
        wanted = [[(0, position)] for position in range(min(limit, total))]
    else:
        library.diff.compare()
        rows, total = library.diff.rows("order", 0, limit)
        data["diff"] = {"counts": library.diff.counts(), "rows": []}
        wanted = [[(side, row[key]) for side, key in enumerate("ab") if row[key] is not None] for row in rows]
    held = 0
    for number, places in enumerate(wanted):
        part = [_one(library, side, position) for side, position in places]
        used += sum(size for _, _, size in part)
        if used > max_bytes and held:
            break
        for (side, position), (group, tokens, _) in zip(places, part, strict=True):
            data["groups"][f"{side}/{position}"] = group
            data["tokens"].update(tokens)
            if side == 0:
                data["items"].append(payload.summary(position, library.runs[0].group(position)))
        if library.diff is not None:
            data["diff"]["rows"].append(rows[number])
        held += 1
    data["held"], data["total"] = held, total
    title = " and ".join(run.name for run in library.runs)
    return Exported(exported_page(title, data), held, total)


def _one(library: Library, side: int, position: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """(a group, the tokens of its attempts, the size of both)."""
    found = library.runs[side].group(position)
    group = payload.group(position, found)
    tokens = {}
    if not isinstance(found, Unreadable):
        for attempt in found.attempts[: payload.ATTEMPTS]:
            sequences = payload.tokens(found, attempt.index, library.decode, _TOKENS)
            if sequences:
                tokens[f"{side}/{position}/{attempt.index}"] = sequences
    size = len(json.dumps(group, ensure_ascii=False)) + len(json.dumps(tokens, ensure_ascii=False))
    return group, tokens, size
