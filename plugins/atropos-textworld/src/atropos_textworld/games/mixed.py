"""Mixed games: several tasks of different kinds in one world."""

from __future__ import annotations

from collections.abc import Callable

from atropos_textworld.games.blueprint import Blueprint, Room
from atropos_textworld.games.design import Designer
from atropos_textworld.games.kind import GameKind, generated
from atropos_textworld.games.parts import (
    elsewhere,
    hiding_place,
    into,
    lock_way,
    locked_container,
    poison,
    reachable,
    receptacle,
    the,
    visit,
)

Part = Callable[[Designer, Room], str]
"""Adds one task to the world and its solution to the plan; the sentence that asks for it. `Room` is home."""


def locked_door(world: Designer, home: Room) -> str:
    """Get behind a locked door."""
    target = world.rng.choice(elsewhere(world))
    door = lock_way(world, target)
    world.walk(target)
    world.goal_visit(target)
    return f"Get past the {door.name} and see the {target.name}."


def locked_box(world: Designer, home: Room) -> str:
    """Get something out of a locked container."""
    container, key = locked_container(world, world.rng.choice(reachable(world)))
    prize = world.thing(container)
    world.put(key, hiding_place(world, reachable(world)))
    world.fetch(key)
    world.fetch(prize)
    world.goal_holding(prize)
    return f"Get the {prize.name} out of the {container.name}."


def errand(world: Designer, home: Room) -> str:
    """Bring something home."""
    item = world.thing(hiding_place(world, elsewhere(world) if world.level > 1 else world.rooms))
    target = receptacle(world, home)
    world.fetch(item)
    world.deliver(item, target)
    world.goal_delivered(item, target)
    return f"Bring the {item.name} and put it {into(target)} in the {home.name}."


def visits(world: Designer, home: Room) -> str:
    """Look at some rooms."""
    return f"Look in at {the(visit(world, world.rng.randint(1, 1 + world.level)))}."


def danger(world: Designer, home: Room) -> str:
    """Something not to do."""
    return f"Whatever happens, do not eat the {poison(world).name}!"


def mixture(*parts: Part, repeated: tuple[Part, ...]) -> Callable[[Designer], Blueprint]:
    """Games with all these parts, and in longer games some of the repeated ones more."""

    def draw(world: Designer) -> Blueprint:
        world.grow(world.rng.randint(1 + 2 * world.level, 4 + 4 * world.level), straight=world.rng.uniform(0.2, 0.8))
        home = world.here
        more = world.rng.choices(repeated, k=world.rng.randint(0, 2 * (world.level - 1)))
        requests = [part(world, home) for part in (*parts, *more)]
        world.scatter(world.level)
        return world.finish(" ".join(requests))

    return draw


KINDS: tuple[GameKind, ...] = (
    generated(
        "mixed",
        "quest-puzzle",
        mixture(locked_box, errand, repeated=(locked_box, errand)),
        "Locked containers and errands.",
    ),
    generated(
        "mixed",
        "navigation-puzzle",
        mixture(locked_door, visits, repeated=(locked_door, visits)),
        "Locked doors and rooms to visit.",
    ),
    generated(
        "mixed",
        "exploration-quest",
        mixture(visits, errand, repeated=(visits, errand)),
        "Rooms to visit and errands.",
    ),
    generated(
        "mixed",
        "dungeon-crawler",
        mixture(danger, locked_door, repeated=(locked_door, locked_box)),
        "Locked doors and containers, and something deadly.",
    ),
    generated(
        "mixed",
        "adventure",
        mixture(danger, locked_door, errand, repeated=(locked_door, locked_box, errand, visits)),
        "A bit of everything.",
    ),
)
