"""The error that ends the reading of one call."""

from __future__ import annotations


class CallFault(Exception):
    """A call that cannot be read. code: one of ToolParse.error."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code
