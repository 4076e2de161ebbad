"""What the registry holds, apart from it so that family modules can import it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from atropos_textworld.games.blueprint import Blueprint
from atropos_textworld.games.design import Designer, design
from atropos_textworld.games.spec import GameSpec

Origin = Literal["generated", "challenge"]


@dataclass(frozen=True, slots=True)
class MadeGame:
    """A textworld.Game and the commands that win it."""

    game: Any
    plan: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GameKind:
    """One kind of game. `make` needs TextWorld; everything else does not."""

    name: str
    family: str
    origin: Origin
    summary: str
    make: Callable[[GameSpec], MadeGame]
    weight: float = 1.0


def generated(family: str, name: str, draw: Callable[[Designer], Blueprint], summary: str) -> GameKind:
    """A kind whose games are drawn as blueprints."""

    def make(spec: GameSpec) -> MadeGame:
        from atropos_textworld.games.assemble import assemble

        blueprint = design(spec, draw)
        game = assemble(blueprint, text_seed=random.Random(f"text:{spec.id}").randrange(2**16))
        return MadeGame(game, tuple(blueprint.plan))

    return GameKind(f"{family}-{name}", family, "generated", summary, make)
