"""The rows' memory and the store of prefixes."""

from __future__ import annotations

from typing import Any

import pytest
from atropos_local.rows import CacheLost, PrefixStore, RowCache, common_prefix

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.model


def write(cache: RowCache, first: int, starts: list[int], tokens: int, value: float) -> tuple[Any, Any]:
    positions = torch.tensor(starts)[:, None] + torch.arange(tokens)
    cache.reserve(first + len(starts), max(starts) + tokens)
    cache.aim(first, positions, max(starts) + tokens)
    states = torch.full((len(starts), 2, tokens, 4), value)
    return cache.update(states, -states, 0)


def test_rows_grow_in_place_and_keep_what_they_hold() -> None:
    cache = RowCache(10**6)
    write(cache, 0, [0, 0], 3, 1.0)
    write(cache, 2, [0], 300, 2.0)  # more rows and more length: the memory is enlarged
    keys, values = write(cache, 0, [3, 2], 1, 5.0)
    assert keys.shape == (2, 2, 4, 4)
    assert keys[0, 0, :, 0].tolist() == [1.0, 1.0, 1.0, 5.0]
    assert keys[1, 0, :3, 0].tolist() == [1.0, 1.0, 5.0]
    assert values[0, 0, 3, 0] == -5.0
    assert cache.capacity[0] >= 3
    assert cache.capacity[1] >= 300


def test_memory_stays_within_its_bound() -> None:
    cache = RowCache(2048)
    write(cache, 0, [0] * 8, 10, 1.0)
    assert cache.capacity == (8, 32)
    write(cache, 0, [0], 1000, 2.0)
    assert cache.capacity == (1, 1024)
    write(cache, 0, [0] * 4, 10, 3.0)
    assert cache.capacity[0] * cache.capacity[1] <= 2048


def test_copy_save_restore() -> None:
    cache = RowCache(10**6)
    write(cache, 0, [0], 4, 7.0)
    write(cache, 1, [0, 0], 4, 0.5)
    cache.copy(0, 1, 2, count=2)
    saved = cache.save(1, 4)
    assert saved[0][0][0, :, 0].tolist() == [7.0, 7.0, 0.5, 0.5]
    cache.clear()
    assert cache.capacity == (0, 0)
    cache.reserve(2, 10)
    cache.restore(1, saved, 3)
    assert cache.save(1, 4)[0][0][0, :, 0].tolist() == [7.0, 7.0, 0.5, 0.0]


def test_a_failed_enlargement_loses_everything_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RowCache(10**6)
    write(cache, 0, [0], 4, 7.0)

    def refuse(*args: object) -> None:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(cache, "_resized", refuse)
    with pytest.raises(CacheLost, match="allocate"):
        cache.reserve(2, 1000)
    assert cache.capacity == (0, 0)


def ids(*values: int) -> Any:
    return torch.tensor(values)


def test_common_prefix() -> None:
    assert common_prefix(ids(1, 2, 3), ids(1, 2, 4)) == 2
    assert common_prefix(ids(1, 2), ids(1, 2, 4)) == 2
    assert common_prefix(ids(9), ids(1)) == 0
    assert common_prefix(torch.tensor([], dtype=torch.int64), ids(1)) == 0


def test_the_longest_prefix_is_found_and_short_ones_are_not_worth_it() -> None:
    store = PrefixStore(1000)
    store.add(torch.arange(100), {0: ("a", "a")})  # type: ignore[dict-item]
    other = torch.arange(100).clone()
    other[40:] = 7
    store.add(other, {1: ("b", "b")})  # type: ignore[dict-item]
    assert store.find(torch.arange(60)) == (60, {0: ("a", "a")})
    found = torch.cat([other[:50], ids(1, 2, 3)])
    assert store.find(found)[0] == 50
    assert store.find(torch.arange(10)) == (0, None)
    assert store.find(torch.arange(100) + 1) == (0, None)


def test_the_least_recently_used_goes_and_extended_ones_are_replaced() -> None:
    store = PrefixStore(100)
    for base in (0, 1000, 2000):
        store.add(torch.arange(40) + base, {})
    assert (len(store), store.tokens) == (2, 80)
    assert store.find(torch.arange(40))[0] == 0
    assert store.find(torch.arange(40) + 1000)[0] == 40  # used: 2000 is older now
    store.add(torch.arange(40) + 3000, {})
    assert store.find(torch.arange(40) + 2000)[0] == 0
    store.add(torch.arange(50) + 3000, {})
    assert (len(store), store.tokens) == (2, 90)
    assert not store.worth_adding(torch.arange(30) + 3000)
    assert not store.worth_adding(torch.arange(101))
    assert store.worth_adding(torch.arange(60) + 3000)
