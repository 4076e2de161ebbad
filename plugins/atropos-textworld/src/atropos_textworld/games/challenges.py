"""TextWorld's own challenges, with settings chosen by difficulty."""

from __future__ import annotations

import random
from typing import Any

from atropos_textworld.games.kind import GameKind, MadeGame
from atropos_textworld.games.spec import GameSpec

SIMPLE_SETTINGS = {
    "easy": {"rewards": "dense", "goal": "detailed"},
    "medium": {"rewards": "dense", "goal": "brief"},
    "hard": {"rewards": "balanced", "goal": "brief"},
    "expert": {"rewards": "sparse", "goal": "none"},
}
"""`goal` is how much the game says at its start: all steps, what is wanted, or nothing."""


def simple(spec: GameSpec) -> MadeGame:
    """Cook dinner in a small house: the map is fixed, what is where and what is wanted varies.

    The test split uses foods that the other splits never ask for.
    """
    return _make("tw-simple", spec, {**SIMPLE_SETTINGS[spec.difficulty], "test": spec.split == "test"})


def _make(challenge: str, spec: GameSpec, settings: dict[str, Any]) -> MadeGame:
    import textworld
    from textworld import GameOptions
    from textworld.challenges import CHALLENGES

    from atropos_textworld.games.knowledge import native_walkthrough

    options = GameOptions()
    options.seeds = random.Random(f"{spec.kind}:{spec.seed}").randrange(2**31)
    # Anything that draws from the process-wide generator must give the same in any process.
    textworld.g_rng.set_seed(options.seeds["grammar"])
    with native_walkthrough():
        game = CHALLENGES[challenge][1](settings, options)
    return MadeGame(game, tuple(game.metadata["walkthrough"]))


KINDS: tuple[GameKind, ...] = (
    GameKind("tw-simple", "challenge", "challenge", "Cook dinner in a small house.", simple),
)
