"""Connect Four: seven columns, six rows, four in a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atropos_games.rules import Position, Rules

COLUMNS, ROWS, FOUR = 7, 6, 4
MARKS = "xo"


@dataclass(frozen=True)
class Board(Position):
    """columns: the discs of each column from below. last: the column of the last move."""

    columns: tuple[str, ...] = ("",) * COLUMNS
    last: int | None = None

    @property
    def mover(self) -> int:
        return sum(map(len, self.columns)) % 2

    def moves(self) -> tuple[str, ...]:
        """Numbers of columns with room, 1 to 7."""
        if self.payoffs() is not None:
            return ()
        return tuple(str(number) for number, column in enumerate(self.columns, 1) if len(column) < ROWS)

    def after(self, move: str) -> Board:
        at = int(move) - 1
        filled = self.columns[at] + MARKS[self.mover]
        return Board((*self.columns[:at], filled, *self.columns[at + 1 :]), at)

    def payoffs(self) -> tuple[float, float] | None:
        if self.last is not None and self._four(self.last):
            return (1.0, -1.0) if self.columns[self.last][-1] == MARKS[0] else (-1.0, 1.0)
        return (0.0, 0.0) if all(len(column) == ROWS for column in self.columns) else None

    def view(self, seat: int) -> Mapping[str, str]:
        rows = [[self._disc(x, y) for x in range(COLUMNS)] for y in reversed(range(ROWS))]
        numbers = " ".join(map(str, range(1, COLUMNS + 1)))
        board = "\n".join([numbers, *(" ".join(row).upper() for row in rows)])
        return {"board": board, "line": "/".join("".join(row) for row in rows), "mark": MARKS[seat].upper()}

    def _disc(self, x: int, y: int) -> str:
        return self.columns[x][y] if 0 <= x < COLUMNS and 0 <= y < len(self.columns[x]) else "."

    def _four(self, x: int) -> bool:
        """Is the uppermost disc of the column part of a line of four?"""
        y, mark = len(self.columns[x]) - 1, self.columns[x][-1]
        for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
            length = 1
            for way in (1, -1):
                step = 1
                while self._disc(x + way * step * dx, y + way * step * dy) == mark:
                    step += 1
                length += step - 1
            if length >= FOUR:
                return True
        return False


RULES = Rules("connectfour", "Connect Four", lambda rng: Board(), words=frozenset("1234567"), opens=True)
