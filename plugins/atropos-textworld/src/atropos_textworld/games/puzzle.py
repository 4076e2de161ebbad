"""Puzzles: work out how to open what is shut.

Three kinds need mechanisms that TextWorld does not have: keypads, pressure plates and dark shafts.
Those are in `logic/`, as additions to its default knowledge base.
"""

from __future__ import annotations

from itertools import pairwise

from atropos_textworld.games import names
from atropos_textworld.games.blueprint import Blueprint, Item, Room
from atropos_textworld.games.design import Designer
from atropos_textworld.games.kind import GameKind, generated
from atropos_textworld.games.parts import (
    elsewhere,
    hiding_place,
    into,
    locked_container,
    reachable,
    receptacle,
    the,
)

KEYPAD = "It has a key for each digit. You could dial a number on it."
PLATE = "It is set into the floor on springs. Something heavy would press it down."
LANTERN = "It is full of oil. You could kindle it."
SHAFT = "It is narrow and pitch dark. With a light you could traverse it."


def door_sequence(world: Designer) -> Blueprint:
    """A row of rooms with a locked door between each two; the keys lie in the rooms passed so far."""
    doors = world.rng.randint(1 + world.level // 2, 3 * world.level)
    world.grow(doors + 1, straight=1.0)
    for room, following in pairwise(world.rooms):
        name, key_name = world.lock_name(names.DOORS)
        key = world.item("k", key_name, None)
        world.door(room, following, "locked", key, name)
        world.put(key, hiding_place(world, reachable(world)[-2:]))
        world.fetch(key)
        world.walk(following)
        world.goal_visit(following)
    world.scatter(world.level)
    return world.finish("A row of locked doors is before you. Open one after the other and reach the last room.")


def container(world: Designer) -> Blueprint:
    """Keys in locked containers in a small place, among containers that hold nothing."""
    world.grow(world.rng.randint(1, 2 + world.level))
    links = [
        locked_container(world, world.rng.choice(world.rooms)) for _ in range(world.rng.randint(1, 2 * world.level))
    ]
    world.put(links[0][1], world.container(world.rng.choice(world.rooms)))
    for (box, _), (_, key) in pairwise(links):
        world.put(key, box)
    treasure = world.thing(links[-1][0])
    for item in [*(key for _, key in links), treasure]:
        world.fetch(item)
        world.goal_holding(item)
    for _ in range(world.level):
        world.container(world.rng.choice(world.rooms))
    return world.finish(f"Open the {links[-1][0].name} and take the {treasure.name} out of it.")


def combination_lock(world: Designer) -> Blueprint:
    """Safes with keypads; the number of each is written down somewhere, sometimes in the safe before it."""
    world.grow(world.rng.randint(1 + world.level, 2 + 3 * world.level), straight=world.rng.random())
    count = world.rng.randint(1, world.level + 1)
    rooms = world.rng.choices(world.rooms, k=count)
    numbers = [str(number) for number in world.rng.sample(range(1000, 10_000), count + 2 * world.level)]
    codes = [world.item("number", number, None) for number in numbers]
    safes: list[Item] = []
    for index, room in enumerate(rooms):
        adjective = world.lock_name(names.DOORS)[0].split()[0]
        safe = world.item("c", world.name(("safe",), adjective), room, state="locked")
        keypad = world.item("keypad", world.name(("keypad",), adjective), room, description=KEYPAD)
        world.facts.append(("guards", (keypad, safe)))
        for code in codes:
            world.facts.append(("number_of" if code is codes[index] else "wrong_for", (code, keypad)))
        place = safes[-1] if safes and world.rng.random() < 0.5 else hiding_place(world, world.rooms)
        text = f"It reads: the {safe.name} opens with {codes[index].name}."
        note = world.item("o", world.name(names.NOTES), place, description=text)
        world.fetch(note)
        world.do(f"examine {note.name}")
        world.walk(room)
        world.do(f"dial {codes[index].name} on {keypad.name}")
        safe.state = "closed"
        world.open(safe)
        world.goal(("open", (safe,)))
        safes.append(safe)
    treasure = world.thing(safes[-1])
    world.fetch(treasure)
    world.goal_holding(treasure)
    return world.finish(
        f"Open {the(safes)}, and take the {treasure.name} when you find it. The numbers to dial are written down.",
        "keypad",
    )


def weight(world: Designer) -> Blueprint:
    """A row of rooms with gates that open when something heavy is put on a plate."""
    gates = world.rng.randint(1, 3 * world.level)
    world.grow(gates + 1, straight=1.0)
    for room, following in pairwise(world.rooms):
        name, _ = world.lock_name(("gate",))
        gate = world.door(room, following, "locked", None, name)
        plate = world.item("plate", world.name(("plate",), name.split()[0]), room, description=PLATE)
        world.facts.append(("works", (plate, gate)))
        heavy = world.item("weight", world.name(names.WEIGHTS), hiding_place(world, reachable(world)[-2:]))
        world.fetch(heavy)
        world.walk(room)
        world.do(f"put {heavy.name} on {plate.name}")
        heavy.place = plate
        world.release(gate)
        world.walk(following)
        world.goal_visit(following)
    world.scatter(world.level)
    return world.finish("The gates here have no keys, but there are plates in the floor. Reach the last room.", "plate")


def light(world: Designer) -> Blueprint:
    """Treasures at the far ends of dark shafts, which can only be climbed with a burning lantern."""
    world.grow(world.rng.randint(1 + world.level, 2 + 3 * world.level), straight=world.rng.random())
    home = world.here
    place, state = hiding_place(world, world.rooms), ("unlit",)
    lantern = world.item("lantern", world.name(("lantern",)), place, properties=state, description=LANTERN)
    mouths = world.rng.sample(elsewhere(world) or [home], min(world.rng.randint(1, world.level), len(world.rooms) - 1))
    back = world.level > 1
    target = receptacle(world, home) if back else None
    world.fetch(lantern)
    world.do(f"kindle {lantern.name}")
    world.goal(("burning", (lantern,)))
    treasures = [_descend(world, mouth, return_=back) for mouth in mouths]
    if target is not None:
        for treasure in treasures:
            world.deliver(treasure, target)
            world.goal_delivered(treasure, target)
    world.scatter(world.level)
    end = f"Bring everything back to the {home.name} and put it {into(target)}." if target else "Take it."
    story = f"Beyond the dark shafts of this place you may find {the(treasures)}. Kindle a lantern to traverse them."
    return world.finish(f"{story} {end}", "shaft")


def _descend(world: Designer, mouth: Room, *, return_: bool) -> Item:
    """A room at the end of a shaft with a treasure in it; fetch that, and climb back if asked to."""
    cave = world.room_apart()
    adjectives = world.rng.sample(names.ADJECTIVES, 2)
    down, up = (
        world.item("shaft", world.name(("shaft",), adjective), room, description=SHAFT)
        for adjective, room in zip(adjectives, (mouth, cave), strict=True)
    )
    world.facts += [("reaches", (down, cave)), ("reaches", (up, mouth))]
    treasure = world.thing(cave)
    world.walk(mouth)
    world.do(f"traverse {down.name}")
    world.appear(cave)
    world.goal_visit(cave)
    world.fetch(treasure)
    world.goal_holding(treasure)
    if return_:
        world.do(f"traverse {up.name}")
        world.appear(mouth)
    return treasure


KINDS: tuple[GameKind, ...] = (
    generated("puzzle", "door-sequence", door_sequence, "Locked doors in a row."),
    generated("puzzle", "container", container, "Locked containers that hold each other's keys."),
    generated("puzzle", "combination-lock", combination_lock, "Safes with keypads and numbers written down."),
    generated("puzzle", "weight", weight, "Gates that open by weights on plates."),
    generated("puzzle", "light", light, "Dark shafts that need a burning lantern."),
)
