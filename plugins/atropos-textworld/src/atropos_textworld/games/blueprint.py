"""What a drawn world consists of: rooms, things, doors, goals, and the plan that wins it."""

from __future__ import annotations

from dataclasses import dataclass, field

DIRECTIONS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}

MAX_ROOMS = 30
MAX_ITEMS = 80
"""What a game file can hold: bigger worlds overflow its 64 KB of readable memory."""

PLAYER = "player"
INVENTORY = "inventory"


@dataclass(eq=False, slots=True)
class Room:
    """A room at a grid point; `exits` leads by direction to neighbours."""

    index: int
    name: str
    point: tuple[int, int]
    exits: dict[str, Room] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Item:
    """A thing of a TextWorld type: o object, k key, f food, c container, s supporter, or one of ours.

    place: a room, a container, a supporter, INVENTORY, or None for out of the world.
    state: "open", "closed" or "locked" for containers, else None.
    """

    type: str
    name: str
    place: Place = None
    state: str | None = None
    key: Item | None = None
    description: str | None = None
    properties: tuple[str, ...] = ()


@dataclass(eq=False, slots=True)
class Door:
    """A door between two neighbouring rooms."""

    name: str
    rooms: tuple[Room, Room]
    state: str
    key: Item | None = None


Place = Room | Item | str | None
Entity = Room | Item | Door | str
Fact = tuple[str, tuple[Entity, ...]]


@dataclass(frozen=True, slots=True)
class Goal:
    """All facts together win `reward` points; with fails=True they lose the game."""

    facts: tuple[Fact, ...]
    reward: int = 1
    fails: bool = False


@dataclass(slots=True)
class Blueprint:
    """A finished design: everything `assemble` needs, and the plan that wins it."""

    rooms: list[Room]
    doors: list[Door]
    items: list[Item]
    facts: list[Fact]
    start: Room
    goals: list[Goal]
    objective: str
    plan: list[str]
    knowledge: str = "default"
