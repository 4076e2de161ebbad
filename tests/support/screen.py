"""A small terminal: what a reader sees of a program's output, with the window made narrower or wider meanwhile."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\r|\n|[^\x1b\r\n]+")


class Screen:
    """Understands what this product writes: text, line breaks, colours, and clearing from the cursor on.

    reflow: a line that does not fit any more is wrapped again when the width changes, as most terminals do;
    False: it stays where it is and loses what does not fit, as xterm does it.
    """

    def __init__(self, columns: int, *, reflow: bool) -> None:
        self.columns = columns
        self.reflow = reflow
        self._lines = [""]  # as written: wrapping is a matter of showing them
        self._row = self._column = 0
        self._wraps = True
        self.widest = 0

    def feed(self, text: str) -> None:
        for match in _TOKEN.finditer(text):
            token = match.group()
            if token == "\r":
                self._column = 0
            elif token == "\n":
                self._row += 1
                while len(self._lines) <= self._row:
                    self._lines.append("")
            elif match.group(2) == "J":
                self._lines[self._row] = self._lines[self._row][: self._column]
                del self._lines[self._row + 1 :]
            elif token in ("\x1b[?7l", "\x1b[?7h"):
                self._wraps = token.endswith("h")
            elif match.group(2) is not None:
                assert match.group(2) == "m", f"not understood: {token!r}"
            else:
                self._put(token)

    def resize(self, columns: int) -> None:
        if not self.reflow:
            self._lines = [line[:columns] for line in self._lines]
        self.columns = columns

    def _put(self, text: str) -> None:
        text = text if self._wraps else text[: max(0, self.columns - self._column)]
        line = self._lines[self._row].ljust(self._column)
        self._lines[self._row] = line[: self._column] + text + line[self._column + len(text) :]
        self._column += len(text)

    def lines(self) -> list[str]:
        """The lines as written, without those that are empty."""
        return [line.rstrip() for line in self._lines if line.strip()]

    def current(self) -> str:
        """The line that the cursor is in."""
        return self._lines[self._row]
