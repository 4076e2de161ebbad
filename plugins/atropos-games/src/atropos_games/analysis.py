"""What `atropos analyze` says of games: results by opponent and seat, ratings, how exploitable a Kuhn player is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from atropos_cli.sdk.analysis import AnalysisTable, AnalyzedGroup, AnalyzedRollout, Analyzer
from atropos_games import kuhn
from atropos_games.match import OUTCOMES
from atropos_games.ratings import Pair, ratings

_MOST = 200
"""Players, games and seats that are kept apart; names come from files."""
_DECISIONS = frozenset(
    (name, move)
    for name in kuhn.EQUILIBRIUM
    for move in (("fold", "call") if name.endswith("bet") else ("check", "bet"))
)
_POINTS = {"won": 1.0, "won_by_format": 1.0, "drawn": 0.5, "lost": 0.0, "lost_by_format": 0.0}


class GamesAnalyzer(Analyzer):
    """Counts outcomes."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str, str, str], Counter[str]] = {}
        self._pairs: dict[str, dict[tuple[str, str], Pair]] = {}
        self._decisions: dict[str, dict[str, Counter[str]]] = {}

    def add(self, group: AnalyzedGroup) -> None:
        """See Analyzer."""
        game, model = _name(group.task_info.get("game")), _name(group.model)
        for rollout in group.rollouts:
            if rollout.failed or rollout.info.get("outcome") not in OUTCOMES:
                continue
            outcome = str(rollout.info["outcome"])
            opponent, seat = _name(rollout.info.get("opponent")), _name(rollout.info.get("seat"))
            key = (game, model, opponent, seat)
            if key in self._results or len(self._results) < _MOST:
                self._results.setdefault(key, Counter())[outcome] += 1
            self._meet(game, (model, opponent), outcome)
            if game == kuhn.RULES.name:
                self._decide(model, rollout)

    def tables(self) -> Iterator[AnalysisTable]:
        """See Analyzer."""
        rows: list[tuple[str | int | float, ...]] = [
            (*key, sum(counts.values()), *(counts[name] / sum(counts.values()) for name in OUTCOMES))
            for key, counts in sorted(self._results.items())
        ]
        columns = ("game", "player", "opponent", "seat", "sides", *OUTCOMES)
        yield AnalysisTable("games", "Games by opponent and seat", columns, rows, shares=OUTCOMES)
        yield from self._ratings()
        yield from self._exploitability()

    def _meet(self, game: str, players: tuple[str, str], outcome: str) -> None:
        pairs = self._pairs.setdefault(game, {}) if game in self._pairs or len(self._pairs) < _MOST else {}
        if players[1] in ("self", players[0]) or outcome not in _POINTS:
            return
        if players in pairs or len(pairs) < _MOST:
            pair = pairs.setdefault(players, Pair())
            pair.games += 1
            pair.points += _POINTS[outcome]

    def _ratings(self) -> Iterator[AnalysisTable]:
        rows: list[tuple[str | int | float, ...]] = []
        for game, pairs in sorted(self._pairs.items()):
            for player, rating in ratings(pairs).items():
                sides = [(pair, 0) for names, pair in pairs.items() if names[0] == player]
                sides += [(pair, 1) for names, pair in pairs.items() if names[1] == player]
                games = sum(pair.games for pair, _ in sides)
                points = sum(pair.games - pair.points if side else pair.points for pair, side in sides)
                rows.append((game, player, round(rating, 1), games, points / games))
        if rows:
            note = "Maximum likelihood with one drawn game added to each pair; the mean is 1500. Draws are half points."
            columns = ("game", "player", "elo", "games", "score")
            yield AnalysisTable("elo", "Ratings", columns, rows, shares=("score",), note=note)

    def _decide(self, model: str, rollout: AnalyzedRollout) -> None:
        if model not in self._decisions and len(self._decisions) >= _MOST:
            return
        found = self._decisions.setdefault(model, {})
        decisions = rollout.info.get("decisions")
        for pair in decisions if isinstance(decisions, list) else ():
            if isinstance(pair, list) and tuple(map(str, pair)) in _DECISIONS:
                found.setdefault(str(pair[0]), Counter())[str(pair[1])] += 1

    def _exploitability(self) -> Iterator[AnalysisTable]:
        if not any(self._decisions.values()):
            return
        rows: list[tuple[str | float | int, ...]] = []
        shares: list[tuple[str | float | int | None, ...]] = []
        for model, sets in sorted(self._decisions.items()):
            strategy = {name: _bold(counts) for name, counts in sets.items() if sum(counts.values())}
            counted = sum(sum(counts.values()) for counts in sets.values())
            rows.append((model, kuhn.exploitability(strategy), len(strategy), counted))
            shares += [
                (model, name, sum(sets.get(name, Counter()).values()), strategy.get(name), kuhn.EQUILIBRIUM[name])
                for seat in kuhn.SETS
                for name in seat
            ]
        note = (
            "In chips a game, by exact best responses to the shares of sampled moves in each of 12 information sets; "
            "those that were not met count as half and half. 0 for an equilibrium; few games make it too large."
        )
        heads = ("player", "exploitability", "sets met", "decisions")
        yield AnalysisTable("exploitability", "Exploitability in Kuhn poker", heads, rows, note=note)
        columns = ("player", "information set", "decisions", "bets or calls", "in an equilibrium")
        yield AnalysisTable("kuhn", "Decisions in Kuhn poker", columns, shares, shares=columns[-2:])


def _bold(counts: Counter[str]) -> float:
    return (counts["bet"] + counts["call"]) / sum(counts.values())


def _name(value: Any) -> str:
    return str(value)[:200] if isinstance(value, str) and value else "?"
