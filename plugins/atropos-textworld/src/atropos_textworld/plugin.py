"""What this distribution offers to atropos. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from atropos_cli.sdk import ComponentSpec, hookimpl

if TYPE_CHECKING:
    from atropos_cli.sdk.analysis import Analyzer

REQUIRES = ("textworld",)


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """The environment `textworld`."""
    return [
        ComponentSpec(
            "environment",
            "textworld",
            "atropos_textworld.environment:TextWorldEnvironment",
            summary="Text adventure games: generated quests and TextWorld's challenges, played turn by turn.",
            requires=REQUIRES,
        )
    ]


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The environment's rewards, also by name."""
    module = "atropos_textworld.rewards"
    return [
        ComponentSpec("reward", "textworld_score", f"{module}:score", "Share of a game's points that was reached."),
        ComponentSpec("reward", "textworld_won", f"{module}:won", "1 for a game that was won."),
        ComponentSpec("reward", "textworld_lost", f"{module}:lost", "-1 for a game that was lost."),
    ]


@hookimpl
def atropos_register_backends() -> Iterable[ComponentSpec]:
    """The baselines, which play without a model."""
    module = "atropos_textworld.policies.backends"
    return [
        ComponentSpec("backend", "textworld-oracle", f"{module}:OracleBackend", "Plays the game's own plan, and wins."),
        ComponentSpec(
            "backend",
            "textworld-admissible-random",
            f"{module}:AdmissibleRandomBackend",
            "Plays any admissible command of a text game.",
        ),
        ComponentSpec(
            "backend", "textworld-random", f"{module}:RandomBackend", "Plays any verb with any words of a text game."
        ),
    ]


@hookimpl
def atropos_analyze(env: str) -> Analyzer | None:
    """Wins, kinds of games, predictions and memory, for `atropos analyze`."""
    if env != "textworld":
        return None
    from atropos_textworld.analysis.analyzer import TextWorldAnalyzer

    return TextWorldAnalyzer()


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Is TextWorld here, and can games be kept?"""
    from atropos_textworld.doctor import checks

    return checks()
