"""A game between models, or a model and a scripted player: whose move it is, and what each side gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from atropos_cli.sdk import Game, JsonDict, Message, PluginError
from atropos_games.reading import Fault
from atropos_games.rules import SEATS
from atropos_games.tables import Table

OFFENDER, OTHER = -1.5, 0.5
"""The reward of an invalid move, and the reward of the other side (SPIRAL, arXiv 2506.24119)."""

Outcome = Literal["won", "drawn", "lost", "won_by_format", "lost_by_format", "truncated"]
OUTCOMES: tuple[Outcome, ...] = ("won", "drawn", "lost", "won_by_format", "lost_by_format", "truncated")
"""lost_by_format: by a reply without a legal move. truncated: the game was cut off, and both sides get 0."""


@dataclass(frozen=True)
class Pairing:
    """Who plays. players: by seat; the name of its seat for a side of the policy, a role's for another model.

    scripted: the seat of a scripted player and its kind.
    """

    players: tuple[str, str]
    opponent: str
    scripted: tuple[int, str] | None = None
    seed: str = ""
    max_turns: int = 50


class Match(Game):
    """One game."""

    def __init__(self, table: Table, pairing: Pairing) -> None:
        self.pairing = pairing
        scripted = None if pairing.scripted is None else pairing.scripted[0]
        self.players = [name for seat, name in enumerate(pairing.players) if seat != scripted]
        self._table = table
        self._turns = 0
        self._fault: tuple[int, Fault] | None = None

    def reset(self) -> Mapping[str, Sequence[Message]]:
        """Each player gets the rules; who moves first, also the position."""
        told = {name: list(self._table.opening(self._seat(name))) for name in self.players}
        if not self._scripted_moves():
            raise PluginError("the game ended before a model could move", hint="use another opponent for this game")
        mover = self._table.turn()
        told[self.pairing.players[mover]].append(self._table.asked(mover))
        return told

    def turn(self) -> str:
        """Who replies next."""
        return self.pairing.players[self._table.turn()]

    def step(self, player: str, reply: Message) -> Mapping[str, Sequence[Message]] | None:
        """Take a move, and those of a scripted player that follow it."""
        if not self._take(reply.text) or not self._scripted_moves():
            return None
        mover = self._table.turn()
        return {self.pairing.players[mover]: [self._table.asked(mover)]}

    def result(self, player: str) -> JsonDict:
        """`outcome`, `payoff` and what the game says of this side. A player that won has `won` true."""
        seat, outcome = self._seat(player), self._outcome(player)
        found: JsonDict = {
            "seat": SEATS[seat],
            "opponent": self.pairing.opponent,
            "outcome": outcome,
            "won": outcome in ("won", "won_by_format"),
            "payoff": self._payoff(seat),
            **self._table.record(seat),
        }
        if self._fault is not None and self._fault[0] == seat:
            found["fault"] = self._fault[1]
        return found

    def metrics(self, player: str) -> dict[str, float]:
        """Each outcome as 0 or 1, so that their means are rates; the moves of the game; faults by kind."""
        outcome, seat = self._outcome(player), self._seat(player)
        found = {str(name): float(name == outcome) for name in OUTCOMES}
        faults = {kind: float(self._fault == (seat, kind)) for kind in ("unreadable", "illegal")}
        return {**found, **faults, "game_turns": float(self._turns)}

    def close(self) -> None:
        """Close the table."""
        self._table.close()

    def _seat(self, player: str) -> int:
        return self.pairing.players.index(player)

    def _take(self, text: str) -> bool:
        """Make the mover's move; False when the game has ended."""
        mover = self._table.turn()
        fault = self._table.play(text)
        self._turns += 1
        if fault is not None:
            self._fault = (mover, fault)
            return False
        if self._table.payoffs() is not None:
            return False
        if self._turns >= self.pairing.max_turns:
            self.stop_reason = "step_limit"
            return False
        return True

    def _scripted_moves(self) -> bool:
        while self.pairing.scripted is not None and self._table.turn() == self.pairing.scripted[0]:
            if not self._take(self._table.scripted(self.pairing.scripted[1], self.pairing.seed)):
                return False
        return True

    def _payoff(self, seat: int) -> float:
        if self._fault is not None:
            return OFFENDER if self._fault[0] == seat else OTHER
        payoffs = self._table.payoffs()
        return 0.0 if payoffs is None else payoffs[seat]

    def _outcome(self, player: str) -> Outcome:
        seat = self._seat(player)
        if self._fault is not None:
            return "lost_by_format" if self._fault[0] == seat else "won_by_format"
        payoffs = self._table.payoffs()
        if payoffs is None:
            return "truncated"
        return "drawn" if payoffs[seat] == payoffs[1 - seat] else "won" if payoffs[seat] > payoffs[1 - seat] else "lost"
