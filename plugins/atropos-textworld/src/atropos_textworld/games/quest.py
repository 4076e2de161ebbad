"""Quests: find things, carry them, put them where they belong."""

from __future__ import annotations

from atropos_textworld.games.design import Blueprint, Designer, Item
from atropos_textworld.games.kind import GameKind, generated


def fetch(world: Designer) -> Blueprint:
    """Find some things and bring them back to a container or supporter where the game starts."""
    world.grow(world.rng.randint(2 + world.level, 3 + 4 * world.level), straight=world.rng.uniform(0.2, 0.8))
    home = world.here
    target = world.container(home) if world.rng.random() < 0.6 else world.supporter(home)
    wanted = [_hidden(world) for _ in range(world.rng.randint(1, world.level))]
    for item in wanted:
        world.fetch(item)
        world.goal_holding(item)
        world.deliver(item, target)
        world.goal_delivered(item, target)
    world.scatter(2 * world.level)
    where = ("in" if target.type == "c" else "on") + f" the {target.name}"
    listed = _listed([f"the {item.name}" for item in wanted])
    them = "it" if len(wanted) == 1 else "them"
    request = world.rng.choice(
        (
            f"Find {listed} and put {them} {where} in the {home.name}.",
            f"Somebody has mislaid {listed}. Bring {them} back to the {home.name} and put {them} {where}.",
            f"Your task is to put {listed} {where}, which is in the {home.name}.",
        )
    )
    return world.finish(request)


def _hidden(world: Designer) -> Item:
    """A thing in another room: on the floor, in a closed container or on a supporter."""
    room = world.rng.choice([room for room in world.rooms if room is not world.here])
    kind = world.rng.random()
    if kind < 0.4:
        return world.thing(room)
    return world.thing(world.container(room) if kind < 0.7 else world.supporter(room))


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


KINDS: tuple[GameKind, ...] = (generated("quest", "fetch", fetch, "Find things and bring them back."),)
