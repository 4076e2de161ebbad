"""Navigation: find the way, and the way back."""

from __future__ import annotations

from atropos_textworld.games.blueprint import MAX_ROOMS, Blueprint, Item
from atropos_textworld.games.design import Designer
from atropos_textworld.games.kind import GameKind, generated
from atropos_textworld.games.parts import elsewhere, into, lock_way, receptacle, shut_doors, the, visit


def maze(world: Designer) -> Blueprint:
    """One treasure at the end of a branching maze; in longer games it has to be brought back."""
    world.grow(
        world.rng.randint(4 + 3 * world.level, min(8 + 7 * world.level, MAX_ROOMS)),
        straight=world.rng.uniform(0.6, 0.95),
    )
    treasure = world.thing(world.farthest(world.here))
    return _bring(world, [treasure], f"Somewhere in this maze lies the {treasure.name}.", back=world.level > 2)


def labyrinth(world: Designer) -> Blueprint:
    """Treasures in a labyrinth whose passages run in circles."""
    rooms = world.rng.randint(4 + 3 * world.level, min(8 + 6 * world.level, MAX_ROOMS))
    world.grow(rooms, loops=rooms // 3, straight=world.rng.uniform(0.3, 0.7))
    treasures = [world.thing(room) for room in world.rng.sample(elsewhere(world), world.rng.randint(1, world.level))]
    story = f"The passages of this labyrinth run in circles. Somewhere in it: {the(treasures)}."
    return _bring(world, treasures, story, back=world.level > 2)


def exploration(world: Designer) -> Blueprint:
    """Visit some rooms that are named."""
    rooms = world.rng.randint(4 + 2 * world.level, min(6 + 6 * world.level, MAX_ROOMS))
    world.grow(rooms, loops=rooms // 5, straight=world.rng.uniform(0.3, 0.8))
    shut_doors(world, world.rng.randint(0, 2 * world.level))
    stops = visit(world, world.rng.randint(1, 2 * world.level))
    world.scatter(world.level)
    return world.finish(f"Go and have a look at {the(stops)}.")


def dungeon(world: Designer) -> Blueprint:
    """A treasure deep in a dungeon; each lock on the way opens up the region that hides the next key."""
    world.grow(
        world.rng.randint(4 + 2 * world.level, min(6 + 6 * world.level, MAX_ROOMS)),
        straight=world.rng.uniform(0.4, 0.9),
    )
    depths = world.farthest(world.here)
    for _ in range(world.level):
        lock_way(world, depths)
    treasure = world.thing(depths)
    return _bring(world, [treasure], f"Deep in this dungeon lies the {treasure.name}.", back=world.level > 2)


def _bring(world: Designer, treasures: list[Item], story: str, *, back: bool) -> Blueprint:
    """Take all treasures, nearest first, and put them down at home if they have to come back."""
    home = world.here
    target = receptacle(world, home) if back else None
    left = list(treasures)
    while left:
        steps = world.distances(world.here)
        item = min(left, key=lambda item: (steps[world.room_of(item)], item.name))
        left.remove(item)
        world.fetch(item)
        world.goal_holding(item)
    if target is not None:
        for item in treasures:
            world.deliver(item, target)
            world.goal_delivered(item, target)
    world.scatter(world.level)
    them = "it" if len(treasures) == 1 else "them all"
    end = (
        f"Bring {them} back to the {home.name} and put {them} {into(target)}."
        if target
        else f"Find {them} and take {them}."
    )
    return world.finish(f"{story} {end}")


KINDS: tuple[GameKind, ...] = (
    generated("navigation", "maze", maze, "Find a treasure at the end of a maze."),
    generated("navigation", "labyrinth", labyrinth, "Find treasures where passages run in circles."),
    generated("navigation", "exploration", exploration, "Visit the rooms that are named."),
    generated("navigation", "dungeon", dungeon, "Unlock the way to a treasure, region by region."),
)
