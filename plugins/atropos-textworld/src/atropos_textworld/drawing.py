"""Which game is task number i of a split. No game is made here."""

from __future__ import annotations

import random

from atropos_textworld.config import TextWorldConfig
from atropos_textworld.games import registry
from atropos_textworld.games.spec import DIFFICULTIES, SPLITS, GameSpec

_RESIDUES = {"train": range(8), "valid": range(8, 9), "test": range(9, 10)}
"""Last digits of game seeds by split: no game of one split is ever in another."""
_SEEDS = 10**8


def draw(config: TextWorldConfig, split: str, index: int) -> GameSpec:
    """The game of task `index`. Raises ValueError for a split that does not exist.

    The draw depends on nothing else, so the games do not change with the number of workers.
    Seeds never repeat within a split.
    """
    if split not in SPLITS:
        raise ValueError(f"no split {split!r}; there are {', '.join(SPLITS)}")
    rng = random.Random(f"game:{config.game_seed}:{split}:{index}")
    generated, challenges = rng.random() < config.generation_ratio, "challenge"
    origin = "generated" if generated else challenges
    if config.registry_mode != "random":
        origin = config.registry_mode
    found = registry.matching(config.game_type)
    kinds = [kind for kind in found if kind.origin == origin] or list(found)
    kind = rng.choices(kinds, [kind.weight for kind in kinds])[0]
    difficulty = rng.choice(DIFFICULTIES)
    if config.difficulty != "random":
        difficulty = config.difficulty
    return GameSpec(kind.name, difficulty, _seed(config.game_seed, split, index), split)


def _seed(game_seed: int, split: str, index: int) -> int:
    digits = _RESIDUES[split]
    start = random.Random(f"seed:{game_seed}:{split}").randrange(_SEEDS)
    block, digit = divmod(index, len(digits))
    return (start + block) % _SEEDS * 10 + digits[digit]
