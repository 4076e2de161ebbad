"""Row formats: recognised by their keys, read into Records, written back with rollouts left out."""

from __future__ import annotations

from atropos_cli.io.formats import atropos, dumps, messages, native, outcomes, sharegpt, solutions, taubench, trl
from atropos_cli.io.formats.common import Format
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.records import Record, Row

ALL: tuple[Format, ...] = (
    native.FORMAT,
    atropos.FORMAT,
    dumps.FORMAT,
    taubench.FORMAT,
    solutions.FORMAT,
    sharegpt.FORMAT,
    trl.PREFERENCE,
    messages.FORMAT,
    trl.COMPLETION,
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


def read_as(form: Format, row: Row, source: str, line: int) -> Record:
    """The row read as a format that was named, not detected: it may lack the format's fields. Raises RowError."""
    try:
        return form.read(row, source, line)
    except (KeyError, StopIteration):
        keys = ", ".join(list(row)[:8]) or "none"
        raise RowError("the row", f"{form.summary}", f"an object with the keys {keys}") from None


__all__ = ["ALL", "FORMATS", "Format", "RowError", "detect", "read_as"]
