"""What a game with complete rules is: positions, which moves they allow, and what the players get at the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from atropos_cli.sdk import ConfigError

SEATS = ("first", "second")
"""The names of the players, by who begins."""


class Position(ABC):
    """A position of a game of two players, 0 and 1. It never changes; a move gives another one."""

    @property
    @abstractmethod
    def mover(self) -> int:
        """Who moves; of no meaning at the end."""

    @abstractmethod
    def moves(self) -> tuple[str, ...]:
        """The legal moves as players write them, in a fixed order; none at the end."""

    @abstractmethod
    def after(self, move: str) -> Position:
        """The position after a legal move, and after the chance events that follow it."""

    @abstractmethod
    def payoffs(self) -> tuple[float, float] | None:
        """What each player gets, in the game's own units; None before the end."""

    @abstractmethod
    def view(self, seat: int) -> Mapping[str, str]:
        """What a player knows, as variables of the prompt's text `turn`: `board`, and `line`, the same in one line."""

    def knowledge(self, seat: int) -> str:
        """The name of the player's information set."""
        return self.view(seat)["line"]


@dataclass(frozen=True)
class Rules:
    """A game.

    start: the first position, with chance decided by the numbers given. unit: the largest payoff, which becomes the
    reward 1. words: all moves that there are, in lower case; empty where that is not known. perfect: a move of a player
    who cannot be exploited. opens: do other first positions by random moves make sense? decides: is a decision worth
    recording by information set?
    """

    name: str
    title: str
    start: Callable[[Random], Position]
    unit: float = 1.0
    words: frozenset[str] = frozenset()
    perfect: Callable[[Position, Random], str] | None = None
    opens: bool = False
    decides: bool = False


def opened(rules: Rules, rng: Random, plies: int) -> Position:
    """A first position, after random moves where plies says so; no single move ends the game then.

    Raises ConfigError where a hundred tries found none.
    """
    for _ in range(100 if plies else 1):
        position = rules.start(rng)
        for _ in range(plies):
            if position.payoffs() is not None:
                break
            position = position.after(rng.choice(position.moves()))
        if not plies or (position.payoffs() is None and not _one_move_ends(position)):
            return position
    raise ConfigError(
        f"opening_plies {plies}: no start of {rules.name} with as many random moves leaves a game to play",
        hint="use a smaller number",
    )


def _one_move_ends(position: Position) -> bool:
    return any(position.after(move).payoffs() is not None for move in position.moves())
