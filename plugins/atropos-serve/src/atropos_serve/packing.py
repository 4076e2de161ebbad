"""Which units of the queue make the next batch: exactly `target` sequences, oldest first, nothing split.

A unit is what may not be divided: one group, or several small ones of an environment that belong together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd

Lane = tuple[int | None, int]
"""An environment (None: unknown) and a size: units of one lane leave in the order in which they came."""


@dataclass(frozen=True, slots=True)
class Unit:
    """An entry of the queue. id: its place in the order; groups: the ids of its groups."""

    id: int
    size: int
    env: int | None
    groups: tuple[int, ...]


Lanes = Mapping[Lane, Iterable[Unit]]


def choose(units: Sequence[Unit], target: int) -> list[Unit] | None:
    """The units that add up to `target`, each as early in the sequence as any solution allows; None if there are none.

    Small sizes may be left out of a batch, but the first unit never is if some batch can hold it: nothing starves.
    """
    taken, missing = _greedy(units, target)
    if missing == 0:
        return taken
    step = gcd(target, *(unit.size for unit in units))
    need = target // step
    sizes = [unit.size // step for unit in units]
    limit = (1 << (need + 1)) - 1
    # reachable[i], as bits: the sums that units[i:] can make
    reachable = [1] * (len(units) + 1)
    for index in range(len(units) - 1, -1, -1):
        reachable[index] = (reachable[index + 1] | (reachable[index + 1] << sizes[index])) & limit
    if not reachable[0] >> need & 1:
        return None
    chosen = []
    for index, unit in enumerate(units):
        if need == 0:
            break
        if sizes[index] <= need and reachable[index + 1] >> (need - sizes[index]) & 1:
            chosen.append(unit)
            need -= sizes[index]
    return chosen


def _greedy(units: Sequence[Unit], target: int) -> tuple[list[Unit], int]:
    taken: list[Unit] = []
    for unit in units:
        if target == 0:
            break
        if unit.size <= target:
            taken.append(unit)
            target -= unit.size
    return taken, target


def window(lanes: Lanes, target: int) -> list[Unit]:
    """The units that a batch could hold, in order: of each lane no more than fill a batch alone."""
    heads = [list(islice(units, target // size)) for (_, size), units in lanes.items() if size <= target]
    return list(heapq.merge(*heads, key=_place))


def _place(unit: Unit) -> int:
    return unit.id


def pack(lanes: Lanes, target: int, minimums: Mapping[int, int]) -> list[Unit] | None:
    """The next batch, with at least `minimums[env]` sequences of each of these environments."""
    units = window(lanes, target)
    if not minimums:
        return choose(units, target)
    first: list[Unit] = []
    for env, least in minimums.items():
        have = 0
        for unit in units:
            if have >= least:
                break
            if unit.env == env:
                first.append(unit)
                have += unit.size
        if have < least:
            return None
    left = target - sum(unit.size for unit in first)
    if left < 0:
        return None
    taken = {unit.id for unit in first}
    rest = choose([unit for unit in units if unit.id not in taken], left) if left else []
    return None if rest is None else sorted(first + rest, key=_place)


def minimums(
    batch_size: int, shares: Mapping[int, float], sizes: Mapping[int, int], live: Callable[[int], bool]
) -> dict[int, int]:
    """How many sequences of each live environment a batch must hold at least.

    Shares of more than the whole batch are scaled down to it. A minimum is rounded up to whole groups, unless the
    batch cannot hold all of them: then down.
    """
    wanted = {env: share for env, share in shares.items() if share > 0 and live(env)}
    total = sum(wanted.values())
    scale = 1 / total if total > 1 else 1.0
    least = {env: int(batch_size * share * scale + 1e-9) for env, share in wanted.items()}
    up = {env: -(-count // sizes[env]) * sizes[env] for env, count in least.items()}
    if sum(up.values()) > batch_size:
        up = {env: count // sizes[env] * sizes[env] for env, count in least.items()}
    return {env: count for env, count in up.items() if count}
