"""Names that an option asks for, and whether any row has them: a name that none has is an error, not a silent no."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from atropos_cli.errors import DataError

_KNOWN = 30


@dataclass(slots=True)
class _Count:
    there: int = 0
    lacking: int = 0
    note: str | None = ""
    known: dict[str, None] = field(default_factory=dict)


class Presence:
    """Counts for each (option, name) how many rows have it. known: names that a row has instead, for the hint."""

    def __init__(self, noun: str = "rows") -> None:
        self._noun = noun
        self._counts: dict[tuple[str, str], _Count] = {}

    def see(self, option: str, name: str, *, there: bool, known: Iterable[str] = (), note: str | None = "") -> None:
        """Count one row. note: what becomes of rows without the name; None: it is no news that some lack it."""
        count = self._counts.setdefault((option, name), _Count(note=note))
        if there:
            count.there += 1
            return
        count.lacking += 1
        if len(count.known) < _KNOWN:
            count.known.update(dict.fromkeys(known))

    def tally(self) -> list[Any]:
        """The counts, for `absorb`."""
        return [
            [*key, count.there, count.lacking, count.note, list(count.known)] for key, count in self._counts.items()
        ]

    def absorb(self, state: Iterable[Any]) -> None:
        """Add the counts of another part of the input."""
        for option, name, there, lacking, note, known in state:
            count = self._counts.setdefault((option, name), _Count(note=note))
            count.there += there
            count.lacking += lacking
            count.known.update(dict.fromkeys(known[: max(0, _KNOWN - len(count.known))]))

    def check(self) -> list[str]:
        """A sentence for each name that some rows lack. Raises DataError for a name that all rows lack."""
        said = []
        for (option, name), count in self._counts.items():
            if not count.lacking:
                continue
            if not count.there:
                close = get_close_matches(name.rpartition(".")[2], count.known, n=1)
                there = f"there are: {', '.join(list(count.known)[:_KNOWN])}" if count.known else None
                raise DataError(
                    f"{option}: none of the {count.lacking} {self._noun} has {name}",
                    hint=f"did you mean {close[0]}?" if close else there,
                )
            if count.note is not None:
                share = f"{count.lacking} of {count.lacking + count.there} {self._noun}"
                said.append(f"{option}: {share} have no {name}{count.note}")
        return said
