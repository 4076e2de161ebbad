"""The error of a row."""

from __future__ import annotations


class RowError(Exception):
    """A row that is JSON, but not of its format: the field, what was expected there, and what was found."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.field = field
        self.expected = expected
        self.found = found
