"""The queue in memory: ids and sizes only. Bodies are on disk."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping

from atropos_serve.packing import Lane, Unit, choose, pack
from atropos_serve.wire import Refused

_BUFFERED_BATCHES = 4


class _Lane:
    """Units of one environment and size, made when they are looked at."""

    __slots__ = ("bundles", "env", "ids", "size")

    def __init__(self, lane: Lane, ids: deque[int], bundles: Mapping[int, tuple[int, ...]]) -> None:
        self.env, self.size = lane
        self.ids, self.bundles = ids, bundles

    def __iter__(self) -> Iterator[Unit]:
        for unit in self.ids:
            yield Unit(unit, self.size, self.env, self.bundles.get(unit, (unit,)))


class Queue:
    """What waits for a trainer: groups in lanes, and smaller pieces that wait for their complements."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, deque[int]] = defaultdict(deque)
        self._bundles: dict[int, tuple[int, ...]] = {}
        self._pieces: dict[int | None, list[Unit]] = defaultdict(list)
        self.groups = 0
        self.sequences = 0
        self._changes = 0
        self._blocked: tuple[int, int, bool] = (-1, 0, False)

    def restore(self, unit: int, env: int | None, groups: list[tuple[int, int]]) -> None:
        """A unit found on disk, as pairs of id and size. Units come in their order."""
        self._append(unit, env, sum(size for _, size in groups), tuple(group for group, _ in groups))

    def place(self, group: int, env: int | None, size: int, wanted: int | None, batch_size: int) -> Unit | None:
        """Put a group where it belongs; the unit that it completed, or None: it waits for its complements.

        wanted: the group size that its environment has declared.
        """
        self._changes += 1
        if self.is_unit(size, wanted, batch_size):
            return self._append(group, env, size, (group,))
        whole = self._whole(size, wanted, batch_size)
        pieces = self._pieces[env]
        pieces.append(Unit(group, size, env, (group,)))
        for target in range(max(whole, -(-size // whole) * whole), batch_size + 1, whole):
            if batch_size % target == 0 and (found := choose(pieces, target)) is not None:
                chosen = {piece.id for piece in found}
                self._pieces[env] = [piece for piece in pieces if piece.id not in chosen]
                return self._append(group, env, target, tuple(piece.id for piece in found))
        return None

    def check(self, env: int | None, size: int, wanted: int | None, batch_size: int) -> None:
        """Raises Refused for a group that would never leave."""
        if size > batch_size:
            raise Refused.because(f"a group of {size} sequences; a batch has {batch_size}", "tokens")
        if batch_size % size == 0 and size >= self._whole(size, wanted, batch_size):
            return
        waiting = self.buffered(env) + size * len(self._lanes.get((env, size), ()))
        if waiting + size > _BUFFERED_BATCHES * batch_size:
            raise Refused.because(
                f"a group of {size} sequences: {waiting} such sequences of this environment wait already, and do not "
                f"add up to {wanted or batch_size}",
                "tokens",
            )

    def is_unit(self, size: int, wanted: int | None, batch_size: int) -> bool:
        """Does a group of this size need no complements?"""
        whole = self._whole(size, wanted, batch_size)
        return size == whole or (size > whole and batch_size % size == 0)

    @staticmethod
    def _whole(size: int, wanted: int | None, batch_size: int) -> int:
        """The size that groups of an environment are put together to; its own, where none that is of use is known."""
        return size if wanted is None or batch_size % wanted else wanted

    def _append(self, unit: int, env: int | None, size: int, groups: tuple[int, ...]) -> Unit:
        self._changes += 1
        self._lanes[env, size].append(unit)
        if groups != (unit,):
            self._bundles[unit] = groups
        self.groups += len(groups)
        self.sequences += size
        return Unit(unit, size, env, groups)

    def buffered(self, env: int | None) -> int:
        """Sequences of an environment that wait for their complements."""
        return sum(piece.size for piece in self._pieces.get(env, ()))

    @property
    def buffered_groups(self) -> int:
        return sum(len(pieces) for pieces in self._pieces.values())

    def sequences_of(self, env: int | None) -> int:
        return sum(size * len(ids) for (owner, size), ids in self._lanes.items() if owner == env)

    def sizes(self) -> dict[int, int]:
        """How many units of each size wait."""
        found: dict[int, int] = defaultdict(int)
        for (_, size), ids in self._lanes.items():
            found[size] += len(ids)
        return dict(sorted(found.items()))

    def next(self, batch_size: int, minimums: Mapping[int, int]) -> list[Unit] | None:
        """The next batch; it stays in the queue until `take`."""
        if self.sequences < batch_size:
            return None
        return pack({lane: _Lane(lane, ids, self._bundles) for lane, ids in self._lanes.items()}, batch_size, minimums)

    def take(self, units: list[Unit]) -> None:
        """Remove a batch. Of each lane it holds the first units."""
        self._changes += 1
        for unit in units:
            ids = self._lanes[unit.env, unit.size]
            assert ids[0] == unit.id
            ids.popleft()
            self._bundles.pop(unit.id, None)
            self.groups -= len(unit.groups)
            self.sequences -= unit.size
            if not ids:
                del self._lanes[unit.env, unit.size]

    def blocked(self, batch_size: int) -> bool:
        """Are there sequences enough for a batch, in sizes of which none can be made? Then more of any size help."""
        if self.sequences < batch_size:
            return False
        if any(size * len(ids) >= batch_size and batch_size % size == 0 for (_, size), ids in self._lanes.items()):
            return False
        if self._blocked[:2] != (self._changes, batch_size):
            self._blocked = (self._changes, batch_size, self.next(batch_size, {}) is None)
        return self._blocked[2]
