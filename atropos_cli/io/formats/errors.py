"""The error of a row."""

from __future__ import annotations


class RowError(Exception):
    """A row that is JSON, but not of its format: the field, the expected and the found value."""

    def __init__(self, field: str, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.field = field
        self.expected = expected
        self.found = found
