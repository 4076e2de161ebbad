"""The one place that writes to the terminal. stdout is data; stderr is everything else.

Tables and JSON are plain text in both a terminal and a pipe. Colour is used for the words `error`,
`warning`, `hint` and `next` only, on a terminal, unless NO_COLOR is set.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from atropos_cli.redaction import redacted
from atropos_cli.streams import data_stream

RED, YELLOW, CYAN = "31", "33", "36"
QUIET, NORMAL, VERBOSE = 0, 1, 2


class Output:
    """Writes data to stdout and messages to stderr, whatever these are at the time of the call.

    QUIET leaves data, errors and the one line that says what came out; VERBOSE adds what is in the files anyway.
    """

    def __init__(self, level: int = NORMAL) -> None:
        self.level = level

    @property
    def verbose(self) -> bool:
        """Is everything to be shown (-v)?"""
        return self.level >= VERBOSE

    @property
    def quiet(self) -> bool:
        """Is nothing to be shown but data, errors and the end (-q)?"""
        return self.level <= QUIET

    def data(self, text: str) -> None:
        """A line of data."""
        print(printable(redacted(text)), file=data_stream())

    def json(self, value: Any) -> None:
        """A JSON document, indented."""
        print(redacted(json.dumps(value, indent=2, ensure_ascii=False, default=str)), file=data_stream())

    def table(self, rows: Sequence[Sequence[str]], *, header: Sequence[str] = ()) -> None:
        """Columns aligned by spaces; the last one is not padded. Prints nothing for no rows."""
        if not rows:
            return
        lines = [
            [printable(redacted(cell), lines=False) for cell in row] for row in ([header, *rows] if header else rows)
        ]
        widths = [max(len(row[column]) for row in lines) for column in range(len(lines[0]))]
        for row in lines:
            cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
            print("  ".join([*cells, row[-1]]).rstrip(), file=data_stream())

    def details(self, values: Mapping[str, str]) -> None:
        """Lines of `name: value`, aligned."""
        width = max((len(name) for name in values), default=0) + 1
        for name, value in values.items():
            self.data(f"{name + ':':<{width}} {value}".rstrip())

    def note(self, text: str) -> None:
        """A message, as it is."""
        if not self.quiet:
            self._message(printable(text))

    def essential(self, text: str) -> None:
        """A message that -q keeps: the one line that says what came out."""
        self._message(printable(text))

    def following(self, text: str) -> None:
        """What to do next: the last line of a command."""
        if not self.quiet:
            self._message(f"{painted('next:', CYAN)} {printable(text, lines=False)}")

    def flush(self) -> None:
        """Let data stand before the messages that follow, also where both meet in one file."""
        with contextlib.suppress(OSError, ValueError):
            data_stream().flush()

    def warning(self, text: str, hint: str | None = None) -> None:
        if not self.quiet:
            self._labelled("warning", YELLOW, text, hint)

    def error(self, text: str, hint: str | None = None) -> None:
        self._labelled("error", RED, text, hint)

    def trace(self, text: str) -> None:
        """A traceback."""
        self._message(printable(text.rstrip("\n")))

    def _labelled(self, label: str, color: str, text: str, hint: str | None) -> None:
        self._message(f"{painted(label + ':', color)} {printable(text)}")
        if hint:
            self._message(f"{painted('hint:', CYAN)} {printable(hint)}")

    def _message(self, text: str) -> None:
        try:
            print(text, file=sys.stderr)  # noqa: T201
        except OSError:
            return  # nobody reads our messages: not a reason to stop the work


def painted(text: str, color: str, stream: TextIO | None = None) -> str:
    """The text in a colour, where colours are wanted."""
    return f"\x1b[{color}m{text}\x1b[0m" if is_rich_terminal(stream or sys.stderr) and not no_color() else text


def no_color() -> bool:
    """https://no-color.org: any value but the empty one."""
    return bool(os.environ.get("NO_COLOR"))


def is_rich_terminal(stream: TextIO) -> bool:
    """A terminal that understands cursor movement."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") != "dumb"
    except ValueError:  # closed
        return False


def printable(text: str, *, lines: bool = True) -> str:
    """The text with control characters made visible: names and errors come from strangers."""
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(char if char.isprintable() or char in kept else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    return " " if char in "\n\t\r" else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
