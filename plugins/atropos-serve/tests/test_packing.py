"""The next batch: exact, oldest first, never stuck while some batch can be made."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import combinations

from atropos_serve.packing import Lane, Unit, choose, minimums, pack, window
from hypothesis import given
from hypothesis import strategies as st


def units(*sizes: int, env: int | None = None) -> list[Unit]:
    return [Unit(place, size, env, (place,)) for place, size in enumerate(sizes)]


def lanes(entries: list[Unit]) -> dict[Lane, deque[Unit]]:
    made: dict[Lane, deque[Unit]] = defaultdict(deque)
    for unit in entries:
        made[unit.env, unit.size].append(unit)
    return made


def places(found: list[Unit] | None) -> list[int] | None:
    return None if found is None else [unit.id for unit in found]


def test_equal_sizes_leave_in_their_order() -> None:
    assert places(pack(lanes(units(8, 8, 8, 8)), 16, {})) == [0, 1]


def test_a_group_that_does_not_fit_now_is_left_for_the_next_batch() -> None:
    assert places(pack(lanes(units(8, 4, 8, 4)), 16, {})) == [0, 1, 3]


def test_a_size_that_fits_no_batch_does_not_hold_up_the_others() -> None:
    assert places(pack(lanes(units(3, 3, 8, 3, 8)), 16, {})) == [2, 4]


def test_nothing_adds_up() -> None:
    assert pack(lanes(units(8, 8, 8)), 12, {}) is None


@given(st.lists(st.integers(1, 7), max_size=10), st.integers(1, 16))
def test_the_choice_is_the_earliest_of_all_exact_ones(sizes: list[int], target: int) -> None:
    entries = units(*sizes)
    exact = [
        [unit.id for unit in some]
        for count in range(1, len(entries) + 1)
        for some in combinations(entries, count)
        if sum(unit.size for unit in some) == target
    ]
    assert places(choose(entries, target)) == min(exact, default=None)
    assert places(pack(lanes(entries), target, {})) == min(exact, default=None)


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), max_size=80))
def test_sizes_that_divide_the_batch_never_pile_up(sizes: list[int]) -> None:
    """Each lane alone fills a batch in the end, so what is left is less than one batch of each size."""
    left = lanes(units(*sizes))
    while (batch := pack(left, 12, {})) is not None:
        for unit in batch:
            assert left[unit.env, unit.size].popleft() == unit
    assert all(len(rest) < 12 // size for (_, size), rest in left.items())


def test_the_window_is_bounded_by_the_batch() -> None:
    assert len(window(lanes(units(*[8] * 10_000, *[4] * 10_000)), 64)) == 8 + 16


def test_minimums_are_kept() -> None:
    entries = [*units(8, 8, 8, env=0), Unit(7, 4, 1, (7,))]
    assert places(pack(lanes([*entries, Unit(8, 4, 1, (8,))]), 16, {1: 4})) == [0, 7, 8]
    assert pack(lanes(entries[:3]), 16, {1: 4}) is None


def always(env: int) -> bool:
    return True


def test_minimums_are_whole_groups_of_live_environments() -> None:
    assert minimums(16, {0: 0.25, 1: 0.3}, {0: 8, 1: 2}, always) == {0: 8, 1: 4}
    assert minimums(16, {0: 0.25, 1: 0.3}, {0: 8, 1: 2}, lambda env: env == 1) == {1: 4}


def test_minimums_of_more_than_a_batch_are_scaled() -> None:
    assert minimums(16, {0: 1.0, 1: 1.0}, {0: 4, 1: 4}, always) == {0: 8, 1: 8}
    assert minimums(16, {0: 0.34, 1: 0.33, 2: 0.33}, {0: 8, 1: 8, 2: 4}, always) == {2: 4}
