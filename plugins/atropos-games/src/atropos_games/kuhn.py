"""Kuhn poker: three cards, one bet. Its equilibrium, and how much a strategy loses to a best response.

Each of two players antes one chip and gets one card of jack, queen and king. A player may check or bet one chip; after
a bet the other folds or calls. The higher card wins the pot. The first player loses 1/18 of a chip a game with best
play of both (H. W. Kuhn, A simplified two-person poker, 1950).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from atropos_games.rules import Position, Rules

CARDS = ("jack", "queen", "king")
DEALS = tuple(itertools.permutations(range(3), 2))
_NEXT: Mapping[tuple[str, ...], tuple[str, ...]] = {
    (): ("check", "bet"),
    ("check",): ("check", "bet"),
    ("bet",): ("fold", "call"),
    ("check", "bet"): ("fold", "call"),
}
"""The moves after each history: the one that risks no chip first."""

Strategy = Mapping[str, float]
"""The probability of the second of the two moves (bet, call) by information set."""


@dataclass(frozen=True)
class Hand(Position):
    """cards: numbers into CARDS of the first and the second player."""

    cards: tuple[int, int]
    history: tuple[str, ...] = ()

    @property
    def mover(self) -> int:
        return len(self.history) % 2

    def moves(self) -> tuple[str, ...]:
        return _NEXT.get(self.history, ())

    def after(self, move: str) -> Hand:
        return Hand(self.cards, (*self.history, move))

    def payoffs(self) -> tuple[float, float] | None:
        if self.history in _NEXT:
            return None
        if self.history[-1] == "fold":
            won = 1.0 if self.mover == 0 else -1.0  # who would be next made the bet
            return won, -won
        won = 2.0 if self.history[-1] == "call" else 1.0
        won = won if self.cards[0] > self.cards[1] else -won
        return won, -won

    def view(self, seat: int) -> Mapping[str, str]:
        said = [f"{'You' if at % 2 == seat else 'They'}: {move}" for at, move in enumerate(self.history)]
        card = CARDS[self.cards[seat]]
        board = "\n".join([f"Your card: {card}", *said])
        return {"board": board, "line": " ".join([card, *self.history])}


def perfect(position: Position, rng: Random) -> str:
    """A move of the equilibrium EQUILIBRIUM."""
    assert isinstance(position, Hand)
    safe, bold = position.moves()
    return bold if rng.random() < EQUILIBRIUM[position.knowledge(position.mover)] else safe


EQUILIBRIUM: Strategy = {
    "jack": 1 / 3,
    "queen": 0.0,
    "king": 1.0,
    "jack check bet": 0.0,
    "queen check bet": 2 / 3,
    "king check bet": 1.0,
    "jack bet": 0.0,
    "queen bet": 1 / 3,
    "king bet": 1.0,
    "jack check": 1 / 3,
    "queen check": 0.0,
    "king check": 1.0,
}
"""That of the family of equilibria in which the first player bluffs most: it bets a third of the jacks."""
SETS = tuple(tuple(key for key in EQUILIBRIUM if len(key.split()) % 2 == 1 - seat) for seat in (0, 1))
"""The information sets of each player."""


def expected(first: Strategy, second: Strategy) -> float:
    """What the first player gets on average, in chips. A strategy plays sets that it lacks half and half."""

    def follow(hand: Hand) -> float:
        payoffs = hand.payoffs()
        if payoffs is not None:
            return payoffs[0]
        bold = (first, second)[hand.mover].get(hand.knowledge(hand.mover), 0.5)
        parts = zip(hand.moves(), (1 - bold, bold), strict=True)
        return sum(chance * follow(hand.after(move)) for move, chance in parts if chance)

    return sum(follow(Hand(deal)) for deal in DEALS) / len(DEALS)


def best_response(strategy: Strategy, seat: int) -> float:
    """What the best of all replies to a player in `seat` earns the other, in chips: all 64 pure ones are tried."""
    if seat == 0:
        return max(-expected(strategy, reply) for reply in _pure(1))
    return max(expected(reply, strategy) for reply in _pure(0))


def exploitability(strategy: Strategy) -> float:
    """The mean of what best responses to both seats earn, in chips: 0 for an equilibrium, half of NashConv."""
    return (best_response(strategy, 0) + best_response(strategy, 1)) / 2


def _pure(seat: int) -> Iterator[Strategy]:
    for choices in itertools.product((0.0, 1.0), repeat=len(SETS[seat])):
        yield dict(zip(SETS[seat], choices, strict=True))


RULES = Rules(
    "kuhn",
    "Kuhn poker",
    lambda rng: Hand(rng.choice(DEALS)),
    unit=2.0,
    words=frozenset(move for moves in _NEXT.values() for move in moves),
    perfect=perfect,
    decides=True,
)
