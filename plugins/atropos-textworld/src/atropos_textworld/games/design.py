"""Drawing a world in plain Python: rooms on a grid, things, doors, goals, and the plan that wins.

The designer places things and writes the plan at the same time: each plan verb checks that the
command is possible at that point and moves things as the game will. A world is therefore solvable
by construction, and one whose plan is too short or too long is thrown away before the game engine
ever sees it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from atropos_textworld.games import names
from atropos_textworld.games.blueprint import (
    DIRECTIONS,
    INVENTORY,
    MAX_ITEMS,
    MAX_ROOMS,
    OPPOSITE,
    PLAYER,
    Blueprint,
    Door,
    Fact,
    Goal,
    Item,
    Place,
    Room,
)
from atropos_textworld.games.spec import PLAN_BANDS, GameError, GameSpec


class Designer:
    """Draws one world. All randomness comes from `rng`."""

    def __init__(self, rng: random.Random, difficulty: str) -> None:
        self.rng = rng
        self.difficulty = difficulty
        self.level = list(PLAN_BANDS).index(difficulty) + 1
        self.rooms: list[Room] = []
        self.doors: list[Door] = []
        self.items: list[Item] = []
        self.facts: list[Fact] = []
        self.goals: list[Goal] = []
        self.plan: list[str] = []
        self.start: Room | None = None
        self._initial: dict[Item, tuple[Place, str | None]] = {}
        self._door_state: dict[Door, str] = {}
        self._here: Room | None = None
        self._names: set[str] = set()
        self._room_names = rng.sample(names.ROOMS, len(names.ROOMS))
        self._lock_adjectives = rng.sample(names.ADJECTIVES, len(names.ADJECTIVES))
        self._walked: set[frozenset[Room]] = set()
        self._entered: set[Room] = set()

    # The map

    def grow(self, count: int, *, loops: int = 0, straight: float = 0.0) -> None:
        """Grow a random tree of rooms on the grid, then join neighbours to make `loops` loops.

        straight: the chance that a room is joined to the newest one, not to any; 1.0 makes a
        corridor that turns back on nothing.
        """
        if not 1 <= count <= MAX_ROOMS:
            raise GameError(f"a world of {count} rooms; the game file holds 1 to {MAX_ROOMS}")
        taken = {(0, 0): self._room((0, 0))}
        while len(self.rooms) < count:
            source = self.rooms[-1] if self.rng.random() < straight else self.rng.choice(self.rooms)
            free = [d for d in DIRECTIONS if _beside(source.point, d) not in taken]
            if not free and straight >= 1.0:
                raise GameError("the corridor ran into itself")
            if free:
                direction = self.rng.choice(free)
                point = _beside(source.point, direction)
                taken[point] = self._room(point)
                _join(source, direction, taken[point])
        for point in self.rng.sample(sorted(taken), len(taken)):
            for direction in self.rng.sample(sorted(DIRECTIONS), 4):
                other = taken.get(_beside(point, direction))
                if loops > 0 and other is not None and direction not in taken[point].exits:
                    _join(taken[point], direction, other)
                    loops -= 1
        self.start = self.rooms[0]
        self.appear(self.start)

    def _room(self, point: tuple[int, int]) -> Room:
        room = Room(len(self.rooms), self._room_names[len(self.rooms)], point)
        self.rooms.append(room)
        return room

    def room_apart(self) -> Room:
        """A room that no exit leads to."""
        far_away = max(room.point[0] for room in self.rooms) + 2
        return self._room((far_away, 0))

    @property
    def here(self) -> Room:
        """Where the plan has taken the player so far."""
        if self._here is None:
            raise GameError("the map must be grown first")
        return self._here

    def distances(self, source: Room, blocked: Iterable[Door] = ()) -> dict[Room, int]:
        """Steps from the source to each room that can be reached without the blocked doors."""
        shut = {frozenset(door.rooms) for door in blocked}
        found = {source: 0}
        queue = deque([source])
        while queue:
            room = queue.popleft()
            for other in room.exits.values():
                if other not in found and frozenset((room, other)) not in shut:
                    found[other] = found[room] + 1
                    queue.append(other)
        return found

    def route(self, source: Room, target: Room) -> list[Room]:
        """A shortest way from source to target, both included."""
        steps = self.distances(target)
        way = [source]
        while way[-1] is not target:
            way.append(min(way[-1].exits.values(), key=lambda room: (steps[room], room.index)))
        return way

    def farthest(self, source: Room) -> Room:
        """The room with the longest shortest way from the source."""
        steps = self.distances(source)
        return max(steps, key=lambda room: (steps[room], -room.index))

    def unseen(self) -> list[Room]:
        """Rooms that can be walked to and where the plan has not been."""
        return [room for room in self.distances(self.here) if room not in self._entered]

    def fresh_ways(self) -> list[tuple[Room, Room]]:
        """Ways between neighbours without a door that the plan has not used yet: a door may go there."""
        ways = [(a, b) for a in self.rooms for b in a.exits.values() if a.index < b.index]
        return [w for w in ways if frozenset(w) not in self._walked and self.door_between(*w) is None]

    # Things

    def name(self, nouns: Sequence[str], adjective: str | None = None) -> str:
        """A new name, adjective and noun."""
        for _ in range(200):
            name = f"{adjective or self.rng.choice(names.ADJECTIVES)} {self.rng.choice(nouns)}"
            if name not in self._names:
                self._names.add(name)
                return name
        raise GameError("the names ran out")

    def lock_name(self, nouns: Sequence[str]) -> tuple[str, str]:
        """A name for something with a lock, and one for its key; no other lock has that adjective."""
        if not self._lock_adjectives:
            raise GameError("the adjectives for locks ran out")
        adjective = self._lock_adjectives.pop()
        return self.name(nouns, adjective), self.name(names.KEYS, adjective)

    def item(self, type: str, name: str, place: Place, **fields: object) -> Item:
        """Put a new thing into the world; fields as in Item."""
        if len(self.items) >= MAX_ITEMS:
            raise GameError(f"more than {MAX_ITEMS} things; the game file holds no more")
        item = Item(type, name, place, **fields)  # type: ignore[arg-type]
        self.items.append(item)
        self._initial[item] = (place, item.state)
        return item

    def put(self, item: Item, place: Place) -> None:
        """Decide where a thing is at the start of the game."""
        item.place = place
        self._initial[item] = (place, item.state)

    def thing(self, place: Place) -> Item:
        """A portable object without use."""
        return self.item("o", self.name(names.THINGS), place)

    def container(self, place: Place, state: str = "closed", key: Item | None = None) -> Item:
        """A container that stays where it is."""
        return self.item("c", self.name(names.CONTAINERS), place, state=state, key=key)

    def supporter(self, place: Place) -> Item:
        """Something that things can be put on."""
        return self.item("s", self.name(names.SUPPORTERS), place)

    def door(self, a: Room, b: Room, state: str, key: Item | None = None, name: str | None = None) -> Door:
        """A door on the way between two neighbours that has none yet."""
        door = Door(name or self.name(names.DOORS), (a, b), state, key)
        self.doors.append(door)
        self._door_state[door] = state
        return door

    def door_between(self, a: Room, b: Room) -> Door | None:
        """The door on the way between two neighbours."""
        return next((door for door in self.doors if set(door.rooms) == {a, b}), None)

    def barred(self) -> list[Door]:
        """Doors that are locked at this point of the plan and whose key is not carried."""
        locked = [door for door in self.doors if self._door_state[door] == "locked"]
        return [door for door in locked if door.key is None or door.key.place != INVENTORY]

    def scatter(self, count: int) -> None:
        """Things of no use, on the floors of random rooms."""
        for _ in range(count):
            self.thing(self.rng.choice(self.rooms))

    def room_of(self, item: Item) -> Room:
        """The room a thing is in, through containers and supporters."""
        place = item.place
        while isinstance(place, Item):
            place = place.place
        if isinstance(place, Room):
            return place
        raise GameError(f"{item.name} is in no room")

    # The plan

    def do(self, command: str) -> None:
        """Write a command into the plan as it is."""
        self.plan.append(command)

    def walk(self, target: Room) -> None:
        """Go there by a shortest way, unlocking and opening doors on first passage."""
        for source, room in pairwise(self.route(self.here, target)):
            door = self.door_between(source, room)
            if door is not None:
                self._pass(door)
            self.do("go " + next(d for d, other in source.exits.items() if other is room))
            self._walked.add(frozenset((source, room)))
            self.appear(room)

    def appear(self, room: Room) -> None:
        """Note that the player is there at this point of the plan."""
        self._here = room
        self._entered.add(room)

    def release(self, door: Door) -> None:
        """Note that the last command of the plan has unlocked a door."""
        self._door_state[door] = "closed"

    def _pass(self, door: Door) -> None:
        if self._door_state[door] == "locked":
            if door.key is None or door.key.place != INVENTORY:
                raise GameError(f"the plan has no key for the {door.name}")
            self.do(f"unlock {door.name} with {door.key.name}")
        if self._door_state[door] != "open":
            self.do(f"open {door.name}")
        self._door_state[door] = "open"

    def open(self, container: Item) -> None:
        """Unlock and open a container in this room, unless it is open."""
        self._need(container.place is self.here, f"{container.name} is not here")
        if container.state == "locked":
            self._need(container.key is not None and container.key.place == INVENTORY, f"no key for {container.name}")
            assert container.key is not None
            self.do(f"unlock {container.name} with {container.key.name}")
        if container.state != "open":
            self.do(f"open {container.name}")
        container.state = "open"

    def fetch(self, item: Item) -> None:
        """Walk to a thing, open what it is in, and take it."""
        self.walk(self.room_of(item))
        place = item.place
        if isinstance(place, Item):
            if place.state is not None:
                self.open(place)
            self.do(f"take {item.name} from {place.name}")
        else:
            self.do(f"take {item.name}")
        item.place = INVENTORY

    def deliver(self, item: Item, target: Item) -> None:
        """Walk to a container or supporter and put a carried thing there."""
        self._need(item.place == INVENTORY, f"{item.name} is not carried")
        self.walk(self.room_of(target))
        if target.state is not None:
            self.open(target)
            self.do(f"insert {item.name} into {target.name}")
        else:
            self.do(f"put {item.name} on {target.name}")
        item.place = target

    def _need(self, condition: bool, why: str) -> None:
        if not condition:
            raise GameError(f"the plan does not work: {why}")

    # Goals

    def goal(self, *facts: Fact, reward: int = 1) -> None:
        """Points for making all these facts true; the game is won when all goals are reached."""
        self.goals.append(Goal(facts, reward))

    def goal_holding(self, item: Item) -> None:
        """A point for having the thing in hand."""
        self.goal(("in", (item, INVENTORY)))

    def goal_delivered(self, item: Item, target: Item) -> None:
        """A point for the thing being in the container or on the supporter."""
        self.goal(("in" if target.type == "c" else "on", (item, target)))

    def goal_visit(self, room: Room) -> None:
        """A point for being in the room."""
        self.goal(("at", (PLAYER, room)))

    def lose_when(self, *facts: Fact) -> None:
        """The game is lost when these facts are true."""
        self.goals.append(Goal(facts, reward=0, fails=True))

    def finish(self, objective: str, knowledge: str = "default") -> Blueprint:
        """The blueprint, with everything back where it is at the start of the game."""
        if self.start is None:
            raise GameError("the map must be grown first")
        for item, (place, state) in self._initial.items():
            item.place, item.state = place, state
        return Blueprint(
            rooms=self.rooms,
            doors=self.doors,
            items=self.items,
            facts=self.facts,
            start=self.start,
            goals=self.goals,
            objective=objective,
            plan=self.plan,
            knowledge=knowledge,
        )


def design(spec: GameSpec, draw: Callable[[Designer], Blueprint], attempts: int = 500) -> Blueprint:
    """Draw worlds until the plan's length is in the band of the difficulty. Raises GameError."""
    low, high = PLAN_BANDS[spec.difficulty]
    problem = "none was drawn"
    for attempt in range(attempts):
        rng = random.Random(f"{spec.kind}:{spec.difficulty}:{spec.seed}:{attempt}")
        try:
            blueprint = draw(Designer(rng, spec.difficulty))
        except GameError as error:
            problem = str(error)
            continue
        if low <= len(blueprint.plan) <= high:
            return blueprint
        problem = f"the plan has {len(blueprint.plan)} commands, not {low} to {high}"
    raise GameError(f"no {spec.id} in {attempts} attempts: {problem}")


def _beside(point: tuple[int, int], direction: str) -> tuple[int, int]:
    dx, dy = DIRECTIONS[direction]
    return point[0] + dx, point[1] + dy


def _join(room: Room, direction: str, other: Room) -> None:
    room.exits[direction] = other
    other.exits[OPPOSITE[direction]] = room
