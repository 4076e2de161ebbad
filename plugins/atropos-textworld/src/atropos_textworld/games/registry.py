"""The kinds of games there are, and the choice among them."""

from __future__ import annotations

import difflib
from functools import cache
from importlib import import_module

from atropos_textworld.games.kind import GameKind, MadeGame
from atropos_textworld.games.spec import GameError, GameSpec

FAMILIES = ("quest", "puzzle", "navigation", "mixed", "challenges")
"""Modules beside this one; each has a tuple KINDS."""


@cache
def kinds() -> dict[str, GameKind]:
    """All kinds by name."""
    found: dict[str, GameKind] = {}
    for family in FAMILIES:
        for kind in import_module(f"atropos_textworld.games.{family}").KINDS:
            found[kind.name] = kind
    return found


def matching(game_type: str) -> tuple[GameKind, ...]:
    """The kinds that a --game-type asks for: one kind, or a family; all for an empty string.

    Raises ValueError for one that does not exist.
    """
    found = tuple(k for k in kinds().values() if game_type in ("", k.name, k.family))
    if not found:
        known = sorted({*kinds(), *(kind.family for kind in kinds().values())})
        close = difflib.get_close_matches(game_type, known, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else f"; there are {', '.join(known)}"
        raise ValueError(f"no game type {game_type!r}{hint}")
    return found


def make(spec: GameSpec) -> MadeGame:
    """Make the game of a spec. Needs TextWorld. Raises GameError."""
    kind = kinds().get(spec.kind)
    if kind is None:
        raise GameError(f"no kind of game is called {spec.kind!r}")
    return kind.make(spec)
