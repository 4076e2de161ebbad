"""Quests: find things, carry them, put them where they belong."""

from __future__ import annotations

from itertools import pairwise

from atropos_textworld.games import names
from atropos_textworld.games.blueprint import Blueprint
from atropos_textworld.games.design import Designer
from atropos_textworld.games.kind import GameKind, generated
from atropos_textworld.games.parts import (
    elsewhere,
    hiding_place,
    into,
    listed,
    lock_way,
    locked_container,
    reachable,
    receptacle,
    shut_doors,
    the,
)


def fetch(world: Designer) -> Blueprint:
    """Find some things and bring them back to a container or supporter where the game starts."""
    _grow(world)
    home, target = world.here, receptacle(world, world.here)
    wanted = [world.thing(hiding_place(world, elsewhere(world))) for _ in range(world.rng.randint(1, world.level))]
    for item in wanted:
        world.fetch(item)
        world.goal_holding(item)
        world.deliver(item, target)
        world.goal_delivered(item, target)
    world.scatter(2 * world.level)
    them = "it" if len(wanted) == 1 else "them"
    request = world.rng.choice(
        (
            f"Find {the(wanted)} and put {them} {into(target)} in the {home.name}.",
            f"Somebody has mislaid {the(wanted)}. Bring {them} back to the {home.name} and put {them} {into(target)}.",
            f"Your task is to put {the(wanted)} {into(target)}, which is in the {home.name}.",
        )
    )
    return world.finish(request)


def delivery(world: Designer) -> Blueprint:
    """Take each of some things to a place of its own."""
    _grow(world)
    pairs = []
    for _ in range(world.rng.randint(1, world.level + 1)):
        source, destination = world.rng.sample(world.rooms, 2)
        pairs.append((world.thing(hiding_place(world, [source])), receptacle(world, destination)))
    for item, target in pairs:
        world.fetch(item)
        world.deliver(item, target)
        world.goal_delivered(item, target)
    world.scatter(2 * world.level)
    orders = listed([f"the {item.name} belongs {into(target)}" for item, target in pairs])
    return world.finish(f"Everything in its place: {orders}.")


def rescue(world: Designer) -> Blueprint:
    """An animal is shut in behind locked doors; find the keys and carry it to its basket."""
    world.grow(world.rng.randint(2 * world.level, 4 * world.level), straight=world.rng.uniform(0.3, 0.8))
    home = world.here
    basket = world.item("s", world.name(("basket", "cushion")), home)
    cell = world.farthest(home)
    animal = world.item("o", world.name(names.ANIMALS), cell)
    for _ in range(world.rng.randint(1, world.level)):
        lock_way(world, cell)
    world.fetch(animal)
    world.goal_holding(animal)
    world.deliver(animal, basket)
    world.goal_delivered(animal, basket)
    world.scatter(world.level)
    return world.finish(
        f"The {animal.name} is locked in somewhere and calls for help. Set it free and bring it to"
        f" the {basket.name} in the {home.name}."
    )


def exploration(world: Designer) -> Blueprint:
    """See every room at least once."""
    world.grow(world.rng.randint(2 + world.level, 6 * world.level), straight=world.rng.random())
    shut_doors(world, world.rng.randint(0, world.level))
    unseen = set(world.rooms) - {world.here}
    while unseen:
        steps = world.distances(world.here)
        room = min(unseen, key=lambda room: (steps[room], room.index))
        for seen in world.route(world.here, room)[1:]:
            unseen.discard(seen)
        world.walk(room)
        world.goal_visit(room)
    world.scatter(2 * world.level)
    return world.finish(f"You are to inspect this place. It has {len(world.rooms)} rooms; visit every one of them.")


def puzzle(world: Designer) -> Blueprint:
    """A relic is locked away in one container, the key of which is locked away in another, and so on."""
    _grow(world)
    home, altar = world.here, world.supporter(world.here)
    links = [
        locked_container(world, world.rng.choice(world.rooms)) for _ in range(world.rng.randint(1, world.level + 1))
    ]
    world.put(links[0][1], hiding_place(world, reachable(world)))
    for (container, _), (_, key) in pairwise(links):
        world.put(key, container)
    relic = world.thing(links[-1][0])
    for item in [*(key for _, key in links), relic]:
        world.fetch(item)
        world.goal_holding(item)
    world.deliver(relic, altar)
    world.goal_delivered(relic, altar)
    world.scatter(world.level)
    return world.finish(
        f"The {relic.name} is under lock and key. Find it and lay it on the {altar.name} in the {home.name}."
    )


def _grow(world: Designer) -> None:
    world.grow(world.rng.randint(2 + world.level, 3 + 4 * world.level), straight=world.rng.uniform(0.2, 0.8))


KINDS: tuple[GameKind, ...] = (
    generated("quest", "fetch", fetch, "Find things and bring them back."),
    generated("quest", "delivery", delivery, "Take each thing to a place of its own."),
    generated("quest", "rescue", rescue, "Free an animal from behind locked doors."),
    generated("quest", "exploration", exploration, "Visit every room."),
    generated("quest", "puzzle", puzzle, "Recover a relic from containers that lock up each other's keys."),
)
