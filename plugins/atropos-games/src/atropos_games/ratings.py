"""Elo ratings of players by the results of their games, whatever their order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MEAN, SCALE = 1500.0, 400.0
_ROUNDS, _CLOSE = 10_000, 1e-9


@dataclass
class Pair:
    """The games of two players: points of the first, where a draw is half a point."""

    games: int = 0
    points: float = 0.0


def ratings(pairs: Mapping[tuple[str, str], Pair]) -> dict[str, float]:
    """The most likely ratings (Bradley and Terry; a player 400 points above another scores 10 of 11), best first.

    Each pair that met counts one drawn game more, so that a player who won all has a rating too. The mean of players
    that are linked by games is 1500; ratings of players who are not linked cannot be compared.
    """
    met: dict[str, dict[str, float]] = {}
    points: dict[str, float] = {}
    for (one, other), pair in pairs.items():
        for player, rival, got in ((one, other, pair.points), (other, one, pair.games - pair.points)):
            found = met.setdefault(player, {})
            found[rival] = found.get(rival, 0.0) + pair.games + 1
            points[player] = points.get(player, 0.0) + got + 0.5
    strength = dict.fromkeys(met, 1.0)
    for _ in range(_ROUNDS):
        new = {
            player: points[player]
            / sum(games / (strength[player] + strength[rival]) for rival, games in rivals.items())
            for player, rivals in met.items()
        }
        moved = max((abs(math.log(new[player] / strength[player])) for player in new), default=0.0)
        strength = new
        if moved < _CLOSE:
            break
    found_ratings: dict[str, float] = {}
    for linked in _linked(met):
        mean = sum(math.log10(strength[player]) for player in linked) / len(linked)
        found_ratings |= {player: MEAN + SCALE * (math.log10(strength[player]) - mean) for player in linked}
    return dict(sorted(found_ratings.items(), key=lambda item: -item[1]))


def _linked(met: Mapping[str, Mapping[str, float]]) -> Iterator[list[str]]:
    """Players that games link, directly or by others."""
    left = set(met)
    while left:
        ahead, found = [min(left)], []
        while ahead:
            player = ahead.pop()
            if player in left:
                left.remove(player)
                found.append(player)
                ahead += met[player]
        yield found
