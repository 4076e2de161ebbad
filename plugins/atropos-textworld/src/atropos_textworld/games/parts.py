"""Pieces that several families of games are put together from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from atropos_textworld.games import names
from atropos_textworld.games.blueprint import Door, Item, Room
from atropos_textworld.games.design import Designer
from atropos_textworld.games.spec import GameError


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def the(things: Iterable[Item | Room]) -> str:
    """the a, the b and the c."""
    return listed([f"the {thing.name}" for thing in things])


def into(target: Item) -> str:
    """in the box, or on the table."""
    return f"{'in' if target.type == 'c' else 'on'} the {target.name}"


def receptacle(world: Designer, room: Room) -> Item:
    """A container or a supporter to put things in or on."""
    return world.container(room) if world.rng.random() < 0.5 else world.supporter(room)


def hiding_place(world: Designer, rooms: Sequence[Room]) -> Room | Item:
    """Somewhere in one of the rooms: the floor, a closed container or a supporter."""
    room = world.rng.choice(list(rooms))
    drawn = world.rng.random()
    if drawn < 0.4:
        return room
    return world.container(room) if drawn < 0.7 else world.supporter(room)


def elsewhere(world: Designer) -> list[Room]:
    """All rooms that can be walked to, but this one."""
    return [room for room in world.distances(world.here) if room is not world.here]


def reachable(world: Designer) -> list[Room]:
    """Rooms that can be walked to now: without passing a lock whose key is not in hand."""
    return list(world.distances(world.here, blocked=world.barred()))


def visit(world: Designer, count: int) -> list[Room]:
    """Walk to some rooms where the plan has not been, each worth a point."""
    stops = []
    for _ in range(count):
        unseen = world.unseen()
        if not unseen:
            raise GameError("there are no rooms left to visit")
        stops.append(world.rng.choice(unseen))
        world.walk(stops[-1])
        world.goal_visit(stops[-1])
    return stops


def shut_doors(world: Designer, count: int) -> None:
    """Doors that are closed but not locked, on ways not used yet."""
    ways = world.fresh_ways()
    for a, b in world.rng.sample(ways, min(count, len(ways))):
        world.door(a, b, "closed")


def lock_way(world: Designer, target: Room) -> Door:
    """Lock a door on the way to the target and hide its key where the player can get; fetch the key.

    Only a way that the plan has not used can be given a door, and there must be no way round.
    """
    route = world.route(world.here, target)
    fresh = {frozenset(way) for way in world.fresh_ways()}
    ways = [way for way in pairwise(route) if frozenset(way) in fresh]
    if not ways:
        raise GameError("no door can be put on the way")
    name, key_name = world.lock_name(names.DOORS)
    key = world.item("k", key_name, None)
    door = world.door(*world.rng.choice(ways), "locked", key, name)
    world.put(key, hiding_place(world, reachable(world)))
    world.fetch(key)
    return door


def locked_container(world: Designer, room: Room) -> tuple[Item, Item]:
    """A locked container and its key, which is yet to be put somewhere."""
    name, key_name = world.lock_name(names.CONTAINERS)
    key = world.item("k", key_name, None)
    return world.item("c", name, room, state="locked", key=key), key


def poison(world: Designer) -> Item:
    """Food that loses the game when eaten."""
    food = world.item("f", world.name(names.FOODS), world.rng.choice(world.rooms))
    world.lose_when(("eaten", (food,)))
    return food
