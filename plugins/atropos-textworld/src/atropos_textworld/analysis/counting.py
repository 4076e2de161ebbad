"""Counts in bounded memory: wins by name, wins over time, distinct things."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

from atropos_cli.sdk.analysis import Moments
from atropos_textworld.analysis.reading import Game

BINS = 20
"""Stretches of time that are told apart, at most."""
NAMES = 200
"""Kinds and difficulties that are told apart; later ones are counted together."""
DISTINCT = 200_000
"""Distinct things that are counted exactly."""

OTHERS = "(others)"


class Distinct:
    """How many different texts there were, exactly up to DISTINCT."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def add(self, text: str) -> None:
        if len(self._seen) < DISTINCT:
            self._seen.add(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def full(self) -> bool:
        """Whether there may be more than were counted."""
        return len(self._seen) >= DISTINCT


@dataclass(slots=True)
class Outcomes:
    """How games went. steps_of_won: turns of won games as multiples of their plans."""

    episodes: int = 0
    won: int = 0
    lost: int = 0
    cut_off: int = 0
    games: Distinct = field(default_factory=Distinct)
    score: Moments = field(default_factory=Moments)
    steps: Moments = field(default_factory=Moments)
    plan: Moments = field(default_factory=Moments)
    steps_of_won: Moments = field(default_factory=Moments)

    def add(self, game: Game) -> None:
        self.episodes += 1
        self.won += game.won
        self.lost += game.lost
        self.cut_off += game.cut_off
        self.games.add(game.id)
        self.score.add(game.score)
        self.steps.add(game.steps)
        if game.plan > 0:
            self.plan.add(game.plan)
            if game.won:
                self.steps_of_won.add(game.steps / game.plan)

    @property
    def win_rate(self) -> float | None:
        return self.won / self.episodes if self.episodes else None


class ByName(dict[str, Outcomes]):
    """Outcomes by name."""

    def add(self, name: str, game: Game) -> None:
        if name not in self and len(self) >= NAMES:
            name = OTHERS
        self.setdefault(name, Outcomes()).add(game)


@dataclass(slots=True)
class Stretch:
    """Consecutive episodes."""

    episodes: int = 0
    won: int = 0
    score: float = 0.0

    def take(self, other: Stretch) -> None:
        self.episodes += other.episodes
        self.won += other.won
        self.score += other.score

    @property
    def win_rate(self) -> float:
        return self.won / self.episodes

    @property
    def stderr(self) -> float:
        """Standard error of the win rate."""
        return math.sqrt(self.win_rate * (1 - self.win_rate) / self.episodes)


class OverTime:
    """Stretches of equal length, of which there are never more than BINS: when there are, neighbours are joined."""

    def __init__(self) -> None:
        self.length = 1
        self.stretches: list[Stretch] = []

    def add(self, game: Game) -> None:
        if not self.stretches or self.stretches[-1].episodes >= self.length:
            if len(self.stretches) >= BINS:
                self._join()
            if not self.stretches or self.stretches[-1].episodes >= self.length:
                self.stretches.append(Stretch())
        self.stretches[-1].take(Stretch(1, int(game.won), game.score))

    def _join(self) -> None:
        self.length *= 2
        for first, second in zip(self.stretches[::2], self.stretches[1::2], strict=True):
            first.take(second)
        self.stretches = self.stretches[::2]


class ByLength:
    """Wins by the length of the thinking, in powers of two."""

    def __init__(self) -> None:
        self._bins: dict[int, Stretch] = {}

    def add(self, length: float, game: Game) -> None:
        place = int(math.log2(length + 1))
        self._bins.setdefault(place, Stretch()).take(Stretch(1, int(game.won), game.score))

    def points(self) -> list[tuple[float, Stretch]]:
        """(middle of the lengths, the episodes), in order."""
        return [(1.5 * 2**place - 1, self._bins[place]) for place in sorted(self._bins)]
