"""Tic-tac-toe, with a perfect player."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from atropos_games.rules import Position, Rules

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
MARKS = "xo"


@dataclass(frozen=True)
class Board(Position):
    """cells: nine letters, x and o or a point for an empty one, row by row."""

    cells: str = "." * 9

    @property
    def mover(self) -> int:
        return (9 - self.cells.count(".")) % 2

    def moves(self) -> tuple[str, ...]:
        """Numbers of cells, 1 to 9."""
        if self.payoffs() is not None:
            return ()
        return tuple(str(place + 1) for place, cell in enumerate(self.cells) if cell == ".")

    def after(self, move: str) -> Board:
        place = int(move) - 1
        return Board(self.cells[:place] + MARKS[self.mover] + self.cells[place + 1 :])

    def payoffs(self) -> tuple[float, float] | None:
        for a, b, c in LINES:
            if self.cells[a] == self.cells[b] == self.cells[c] != ".":
                return (1.0, -1.0) if self.cells[a] == MARKS[0] else (-1.0, 1.0)
        return None if "." in self.cells else (0.0, 0.0)

    def view(self, seat: int) -> Mapping[str, str]:
        """Empty cells have their number."""
        shown = [str(place + 1) if cell == "." else cell.upper() for place, cell in enumerate(self.cells)]
        rows = [" | ".join(shown[row : row + 3]) for row in (0, 3, 6)]
        return {"board": "\n--+---+--\n".join(rows), "line": "".join(shown), "mark": MARKS[seat].upper()}


@cache
def value(cells: str) -> float:
    """What the player to move gets with best play of both; at the end, the player who would be next."""
    board = Board(cells)
    payoffs = board.payoffs()
    if payoffs is not None:
        return payoffs[board.mover]
    return max(-value(board.after(move).cells) for move in board.moves())


def perfect(position: Position, rng: Random) -> str:
    """Any of the best moves."""
    assert isinstance(position, Board)
    best = value(position.cells)
    return rng.choice([move for move in position.moves() if -value(position.after(move).cells) == best])


RULES = Rules(
    "tictactoe",
    "tic-tac-toe",
    lambda rng: Board(),
    words=frozenset("123456789"),
    perfect=perfect,
    opens=True,
)
