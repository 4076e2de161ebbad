"""Games of two players. This module is what atropos loads; it names the components."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from atropos_cli.sdk import ComponentSpec, hookimpl

if TYPE_CHECKING:
    from atropos_cli.sdk.analysis import Analyzer


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """The environment `games`."""
    return [
        ComponentSpec(
            "environment",
            "games",
            "atropos_games.environment:GamesEnvironment",
            summary="Games of two players: against itself, another model, chance or a perfect player.",
        )
    ]


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """Its reward, also by name."""
    summary = "What the game paid this side: 1 won, -1 lost, 0 drawn; an invalid move -1.5."
    return [ComponentSpec("reward", "games_payoff", "atropos_games.environment:payoff", summary=summary)]


@hookimpl
def atropos_analyze(env: str) -> Analyzer | None:
    """Results by opponent and seat, ratings, and how exploitable a Kuhn player is."""
    if env != "games":
        return None
    from atropos_games.analysis import GamesAnalyzer

    return GamesAnalyzer()
