"""Worlds drawn in plain Python: names, plan lengths, determinism. No engine."""

from __future__ import annotations

import random
import re
from itertools import combinations, pairwise

import pytest
from atropos_textworld.games import names, registry
from atropos_textworld.games.blueprint import INVENTORY, OPPOSITE
from atropos_textworld.games.design import Designer, design
from atropos_textworld.games.parts import lock_way
from atropos_textworld.games.quest import fetch
from atropos_textworld.games.spec import DIFFICULTIES, PLAN_BANDS, GameError, GameSpec


def test_names_suit_the_parser() -> None:
    nouns = [
        *names.THINGS,
        *names.CONTAINERS,
        *names.SUPPORTERS,
        *names.FOODS,
        *names.DOORS,
        *names.KEYS,
        *names.ANIMALS,
        *names.WEIGHTS,
        *names.NOTES,
    ]
    for word in (*names.ADJECTIVES, *nouns, *names.ROOMS):
        assert re.fullmatch(r"[a-z]+( [a-z]+)*", word), word
        assert not set(word.split()) & set(OPPOSITE), word
    assert len(set(nouns)) == len(nouns)
    assert not set(nouns) & set(names.ADJECTIVES)
    rooms = [frozenset(room.split()) for room in names.ROOMS]
    assert not [pair for pair in combinations(rooms, 2) if pair[0] <= pair[1] or pair[1] <= pair[0]]


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_plan_lengths_keep_to_their_band(difficulty: str) -> None:
    low, high = PLAN_BANDS[difficulty]
    lengths = {len(design(GameSpec("quest-fetch", difficulty, seed), fetch).plan) for seed in range(60)}
    assert low <= min(lengths)
    assert max(lengths) <= high
    assert len(lengths) > 3


def test_bands_do_not_overlap() -> None:
    bands = list(PLAN_BANDS.values())
    assert all(first[1] < second[0] for first, second in pairwise(bands))


def test_the_same_seed_draws_the_same_world_and_another_another() -> None:
    first, again, other = (design(GameSpec("quest-fetch", "hard", seed), fetch) for seed in (1, 1, 2))
    assert first.plan == again.plan
    assert [item.name for item in first.items] == [item.name for item in again.items]
    assert first.plan != other.plan


def test_blueprints_start_where_the_game_starts() -> None:
    """The plan moves things while it is written; the blueprint has them back."""
    blueprint = design(GameSpec("quest-fetch", "medium", 3), fetch)
    assert not [item for item in blueprint.items if item.place == INVENTORY]
    assert all(item.state == "closed" for item in blueprint.items if item.type == "c")


def world(rooms: int = 3) -> Designer:
    designer = Designer(random.Random(1), "easy")
    designer.grow(rooms, straight=1.0)
    return designer


def test_locked_doors_are_unlocked_and_opened_once() -> None:
    designer = world()
    first, second, third = designer.rooms
    key = designer.item("k", "small key", first)
    door = designer.door(second, third, "locked", key)
    designer.fetch(key)
    designer.walk(third)
    designer.walk(first)
    designer.walk(third)
    assert designer.plan.count(f"unlock {door.name} with small key") == 1
    assert designer.plan.count(f"open {door.name}") == 1
    assert sum(command.startswith("go ") for command in designer.plan) == 6


def test_a_plan_that_cannot_work_is_an_error() -> None:
    designer = world()
    designer.door(designer.rooms[1], designer.rooms[2], "locked", designer.item("k", "small key", designer.rooms[2]))
    with pytest.raises(GameError, match="no key for"):
        designer.walk(designer.rooms[2])
    with pytest.raises(GameError, match="not carried"):
        designer.deliver(designer.thing(designer.rooms[0]), designer.supporter(designer.rooms[0]))


def test_a_lock_never_shuts_a_way_that_the_plan_has_used() -> None:
    designer = world()
    designer.walk(designer.rooms[2])
    designer.walk(designer.rooms[0])
    with pytest.raises(GameError, match="no door can be put on the way"):
        lock_way(designer, designer.rooms[2])


def test_the_key_of_a_lock_is_on_this_side_of_it() -> None:
    for seed in range(50):
        designer = Designer(random.Random(seed), "hard")
        designer.grow(8)
        door = lock_way(designer, designer.farthest(designer.here))
        blueprint = designer.finish("")
        assert door.key is not None
        assert designer.room_of(door.key) in designer.distances(blueprint.start, blocked=[door])


def test_worlds_have_room_for_the_game_file_only() -> None:
    with pytest.raises(GameError, match="31 rooms"):
        world(31)
    designer = world()
    designer.scatter(80)
    with pytest.raises(GameError, match="more than 80 things"):
        designer.scatter(1)


def test_every_kind_is_registered_under_its_family() -> None:
    for name, kind in registry.kinds().items():
        assert kind.name == name
        assert kind in registry.matching(kind.family)
        assert registry.matching(name) == (kind,)
    with pytest.raises(ValueError, match="did you mean quest-fetch"):
        registry.matching("quest-fetsh")
