"""One line at the bottom of a terminal that is drawn anew: how far something is.

The cursor always waits at the line's first column. A terminal that was made narrower wraps the line, and the cursor
stays where the line begins; so clearing from the cursor to the end takes all of it, whatever the terminal did. While
the line is written the terminal does not wrap: it may have become narrower since its width was asked for, and the
cursor would wait in the last row of several.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO, cast

from atropos_cli.console.output import printable

_CLEAR = "\r\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_BAR = 20
_LEAST = 8  # columns of a bar that says anything


class StatusLine:
    """Draws on a stream that is a terminal. What others write to standard error meanwhile stands above it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._given = stream
        self._plain: TextIO | None = None
        self._text = ""
        self._drawn = False

    def show(self, parts: Sequence[tuple[int, str]], done: float | None) -> None:
        """Draw the parts that fit, those with the lowest numbers first; done: the share of the bar."""
        columns = self._columns()
        if columns < 1:
            return
        text = fitted(parts, columns - 1)
        room = columns - 1 - len(text) - 3
        if done is not None and room >= _LEAST:
            width = min(_BAR, room)
            filled = round(width * min(1.0, max(0.0, done)))
            text = f"[{'#' * filled}{' ' * (width - filled)}] {text}"
        self._text = text
        self._take()
        self._draw()

    def close(self) -> None:
        """Take the line away. Safe to call twice."""
        self.clear()
        self._text = ""
        if self._plain is not None:
            for name in ("stderr", "stdout"):
                if isinstance(getattr(sys, name), _Above):
                    setattr(sys, name, self._plain)
            self._plain = None

    def clear(self) -> None:
        """Take the line away until it is drawn again."""
        if self._drawn:
            self._drawn = False
            self._write(_CLEAR)

    def _take(self) -> None:
        """From now on, messages of others go above the line."""
        if self._given is None and self._plain is None:
            self._plain = sys.stderr
            above = cast("TextIO", _Above(self._plain, self))
            if sys.stdout is self._plain:  # what plugins print is a message, see streams.py
                sys.stdout = above
            sys.stderr = above

    def _draw(self) -> None:
        self._drawn = True
        self._write(f"{_CLEAR}{_NO_WRAP}{self._text}{_WRAP}\r")

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream().fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _stream(self) -> TextIO:
        return self._given or self._plain or sys.stderr

    def _write(self, text: str) -> None:
        stream = self._stream()
        try:
            stream.write(text)
            stream.flush()
        except (OSError, ValueError):
            return  # nobody looks: not a reason to stop the work

    def wrote(self, text: str) -> None:
        """Somebody has written: the line comes back below what ended with a line break."""
        if text.endswith("\n") and self._text:
            self._draw()


class _Above:
    """Standard error while a status line is there."""

    def __init__(self, stream: TextIO, line: StatusLine) -> None:
        self._stream = stream
        self._line = line

    def write(self, text: str) -> int:
        self._line.clear()
        written = self._stream.write(text)
        self._line.wrote(text)
        return written

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def fitted(parts: Sequence[tuple[int, str]], width: int) -> str:
    """As many parts as fit, in the order given; where not all do, those with the lowest numbers stay."""
    kept: set[int] = set()
    used = -2
    for place in sorted(range(len(parts)), key=lambda place: parts[place][0]):
        needed = len(parts[place][1]) + 2
        if used + needed <= width:
            kept.add(place)
            used += needed
        else:
            break
    text = ", ".join(parts[place][1] for place in sorted(kept)) if kept else min(parts)[1] if parts else ""
    text = printable(text, lines=False)
    # What a stranger's name made longer, or wider than its letters, is cut.
    return text.encode("ascii", "replace").decode()[: max(0, width)]
