"""Row formats: told apart by their keys, read into Records, written back with attempts left out."""

from __future__ import annotations

from atropos_cli.io.formats import atropos, messages, native, outcomes, sharegpt, solutions, taubench, trl
from atropos_cli.io.formats.common import Format, RowError
from atropos_cli.io.records import Row

ALL: tuple[Format, ...] = (
    native.FORMAT,
    atropos.FORMAT,
    taubench.FORMAT,
    sharegpt.FORMAT,
    trl.PREFERENCE,
    messages.FORMAT,
    trl.COMPLETION,
    solutions.FORMAT,
    outcomes.FORMAT,
    trl.TEXT,
)
"""In the order in which they are tried."""

FORMATS: dict[str, Format] = {form.name: form for form in ALL}


def detect(row: Row) -> Format | None:
    """The format of a row by its keys; None when it is none of ours."""
    for form in ALL:
        if form.matches(row):
            return form
    return None


__all__ = ["ALL", "FORMATS", "Format", "RowError", "detect"]
