"""TextWorld's own challenges, with settings chosen by difficulty.

Objectives that spell out the whole way are replaced by ones that say only what is wanted, except
where the easiest difficulty is meant to be told.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from atropos_textworld.games.kind import GameKind, MadeGame
from atropos_textworld.games.spec import PLAN_BANDS, GameError, GameSpec

ATTEMPTS = 30
"""Seeds tried for a game: some settings cannot be met with some seeds."""

SIMPLE_SETTINGS = {
    "easy": {"rewards": "dense", "goal": "detailed"},
    "medium": {"rewards": "dense", "goal": "brief"},
    "hard": {"rewards": "balanced", "goal": "brief"},
    "expert": {"rewards": "sparse", "goal": "none"},
}
"""`goal` is how much the game says at its start: all steps, what is wanted, or nothing."""

HUNT_LEVELS = {"easy": (1, 10), "medium": (11, 20), "hard": (21, 22), "expert": (23, 24)}
"""There are levels up to 30, but from 25 on TextWorld takes 10 seconds and more to make one."""


def simple(spec: GameSpec) -> MadeGame:
    """Cook dinner in a small house: the map is fixed, what is where and what is wanted varies.

    The test split uses foods that the other splits never ask for.
    """
    settings = SIMPLE_SETTINGS[spec.difficulty]
    return _make(spec, lambda rng: {**settings, "test": spec.split == "test"}, trace=settings["goal"] == "detailed")


def cooking(spec: GameSpec) -> MadeGame:
    """Read a recipe, find the ingredients, prepare them and eat the meal. Foods are split by TextWorld."""

    def settings(rng: random.Random) -> dict[str, Any]:
        level = list(PLAN_BANDS).index(spec.difficulty)
        recipe = rng.randint(*((1, 1), (1, 2), (2, 3), (3, 4))[level])
        cook = level > 1 or (level == 1 and rng.random() < 0.5)
        return {
            "recipe": recipe,
            "take": rng.randint(1, recipe),
            "go": (1, 6, 9, 12)[level],
            "open": level > 0,
            "cook": cook,
            # Cutting without cooking fails for many recipes.
            "cut": cook and level > 1,
            "drop": level > 2 and rng.random() < 0.5,
            "recipe_seed": 0,
            "split": spec.split,
        }

    made = _make(spec, settings)
    for quest in made.game.quests:
        # TextWorld takes these from a set, so that their order would differ between processes.
        quest.fail_events = tuple(sorted(quest.fail_events, key=lambda event: str(event.condition)))
    return made


def coin_collector(spec: GameSpec) -> MadeGame:
    """Find a coin at the end of a chain of rooms, with dead ends beside it."""

    def settings(rng: random.Random) -> dict[str, Any]:
        length = rng.randint(*PLAN_BANDS[spec.difficulty])
        dead_ends = rng.randint(0, 2 if length <= 30 else 1)
        return {"level": 100 * dead_ends + length}

    made = _make(spec, settings)
    made.game.objective = "There is a coin somewhere in here. Find it and take it."
    return made


def treasure_hunter(spec: GameSpec) -> MadeGame:
    """Find the right one of two things; taking the wrong one loses."""
    made = _make(spec, lambda rng: {"level": rng.randint(*HUNT_LEVELS[spec.difficulty])})
    wanted = made.plan[-1].removeprefix("take ").split(" from ")[0]
    made.game.objective = f"Find the {wanted} and take it. Taking the wrong thing is the end of the hunt."
    return made


def _make(spec: GameSpec, settings: Callable[[random.Random], dict[str, Any]], *, trace: bool = False) -> MadeGame:
    """Make a challenge, with another seed while this one does not work.

    trace: the game's own text describes all steps, so TextWorld has to know them.
    """
    import textworld
    from textworld import GameOptions
    from textworld.challenges import CHALLENGES
    from textworld.generator.chaining import QuestGenerationError

    from atropos_textworld.games.knowledge import walkthroughs

    problem: Exception | None = None
    for attempt in range(ATTEMPTS):
        rng = random.Random(f"{spec.id}:{spec.split}:{attempt}")
        options = GameOptions()
        options.seeds = rng.randrange(2**31)
        # What draws from the process-wide generator must give the same in any process.
        textworld.g_rng.set_seed(rng.randrange(2**31))
        try:
            with walkthroughs(trace=trace) as walkthrough:
                game = CHALLENGES[spec.kind][1](settings(rng), options)
            plan = game.metadata.get("walkthrough") or walkthrough or game.walkthrough
        except (QuestGenerationError, ValueError, AssertionError) as error:
            problem = error
            continue
        return MadeGame(game, tuple(plan))
    raise GameError(f"no {spec.id} in {ATTEMPTS} attempts: {problem}")


def _kind(name: str, summary: str, make: Callable[[GameSpec], MadeGame]) -> GameKind:
    return GameKind(name, "challenge", "challenge", summary, make)


KINDS: tuple[GameKind, ...] = (
    _kind("tw-simple", "Cook dinner in a small house.", simple),
    _kind("tw-cooking", "Follow a recipe.", cooking),
    _kind("tw-coin_collector", "Find a coin at the end of a chain of rooms.", coin_collector),
    _kind("tw-treasure_hunter", "Find the right one of two things.", treasure_hunter),
)
