"""The meeting place: groups come in, batches go out, and every acknowledged group is on disk."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from atropos_serve.counts import Counts, remember
from atropos_serve.environments import Env, Environments
from atropos_serve.packing import Unit
from atropos_serve.queue import Queue
from atropos_serve.store import Row, Store, Stored
from atropos_serve.wire import Group, Refused, RegisterEnv, Registration, encode


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds. max_queue: groups."""

    env_timeout: float = 60.0
    allocation_timeout: float = 300.0
    max_queue: int = 100_000


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch on its way out. id and expires are those of a lease; None: it left for good."""

    groups: list[Stored]
    id: int | None = None
    expires: float | None = None


class QueueFull(Exception):
    """Back-pressure: come again later."""


class Exchange:
    """All that the endpoints do. Not for several threads."""

    def __init__(self, store: Store, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self.counts = Counts()
        self.envs = Environments(limits.env_timeout, clock)
        for env, value in store.envs():
            self.envs.restore(env, value)
        self.latest: bytes | None = None
        self._load()

    def _load(self) -> None:
        """From disk: at the start, and after a transaction that failed."""
        self._read()
        with self._store.transaction():
            self._place_waiting()

    def _read(self) -> None:
        facts = self._store.facts()
        registered = facts.get("registration")
        self.registration = None if registered is None else Registration.model_validate(registered)
        self.step: int = facts.get("step", 0)
        self.started: bool = facts.get("started", False)
        self._last_batch: int = facts.get("last_batch", 0)
        self._first_batch: int = facts.get("first_batch", 1)
        self._taken_apart: list[int] = facts.get("taken_apart", [])
        self._leases = self._store.batches()
        self._lent: dict[int, tuple[int, int]] = {}
        self.queue = Queue()
        self.waiting: list[Row] = []
        self._waits_since: float | None = None
        for row in self._store.others():
            if row.batch is None:
                self.waiting.append(row)
            else:
                groups, sequences = self._lent.get(row.batch, (0, 0))
                self._lent[row.batch] = (groups + 1, sequences + row.size)
        for unit, rows in groupby(self._store.queued(), key=itemgetter(0)):
            found = list(rows)
            self.queue.restore(unit, found[0][1], [(group, size) for _, _, group, size in found])

    # -- trainers

    def register(self, asked: Registration) -> int:
        """A trainer, new or again: its values replace the old ones, the queue stays. Raises Refused."""
        self.envs.check_batch_size(asked.batch_size)
        resized = self.registration is not None and self.registration.batch_size != asked.batch_size
        try:
            with self._store.transaction():
                self._store.set_fact("registration", asked.model_dump())
                self._store.set_fact("step", asked.starting_step)
                if resized:  # all is packed anew
                    self._store.unpack()
                    self._read()
                self.registration = asked
                self.step = asked.starting_step
                self._place_waiting()
        except BaseException:
            self._load()
            raise
        return uuid.uuid4().int

    def _place_waiting(self) -> None:
        """Queue the groups that came before the trainer."""
        if self.registration is None or not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        for row in waiting:
            if row.size > self.registration.batch_size:
                self.counts.unfit += 1
                self.waiting.append(row)
            else:
                self._place(row.id, row.env, row.size)

    def _place(self, group: int, env: int | None, size: int, *, stored: bool = False) -> bool:
        """stored: the store knows already that it is a unit."""
        assert self.registration is not None
        unit = self.queue.place(group, env, size, self._wanted(env), self.registration.batch_size)
        if unit is not None and not stored:
            self._store.set_unit(unit.id, unit.groups)
        return unit is not None

    def _wanted(self, env: int | None) -> int | None:
        found = self.envs.get(env)
        return None if found is None else found.group_size

    # -- environments

    def register_env(self, asked: RegisterEnv) -> Env | None:
        """A new environment; None while no trainer has asked for a batch. Raises Refused."""
        if self.registration is None or not self.started:
            return None
        env = self.envs.register(asked, self.registration.batch_size)
        self._store.set_env(env.id, env.stored())
        return env

    def disconnect(self, env: int) -> bool:
        found = self.envs.disconnect(env)
        if found is not None:
            self._store.set_env(env, found.stored())
        return found is not None

    def full(self) -> bool:
        return self.queue.groups + self.queue.buffered_groups + len(self.waiting) >= self._limits.max_queue

    def add(self, groups: Sequence[Group], key: str | None = None, step: int | None = None) -> list[bool] | None:
        """Store groups and queue them: of each, whether it is ready; None if the key is known: nothing new.

        All or none is stored, and it is on disk when this returns. Raises Refused, QueueFull.
        """
        if key is not None and self._store.known(key):
            self.counts.duplicates += 1
            for group in groups:
                self.envs.touch(group.env_id)
            return None
        if self.full():
            raise QueueFull
        bodies = [encode(group) for group in groups]
        try:
            self._check(groups)
        except Refused:
            self.counts.refused += 1
            for group in groups:
                if (env := self.envs.touch(group.env_id)) is not None:
                    env.refused += 1
            raise
        ready: list[bool] = []
        before = self.step if step is None else min(step, self.step)
        try:
            with self._store.transaction():
                for group, body in zip(groups, bodies, strict=True):
                    whole = self._is_unit(group)
                    added = self._store.add(group.env_id, len(group.tokens), before, body, queued=whole)
                    if key is not None and not ready:
                        self._store.remember(key, added)
                    ready.append(self._queue(added, group))
        except BaseException:
            self._load()
            raise
        for group, body, done in zip(groups, bodies, ready, strict=True):
            self._count(group, body, done)
        return ready

    def _check(self, groups: Sequence[Group]) -> None:
        if self.registration is not None:
            for group in groups:
                self.queue.check(
                    group.env_id, len(group.tokens), self._wanted(group.env_id), self.registration.batch_size
                )

    def _is_unit(self, group: Group) -> bool:
        if self.registration is None:
            return False
        size = self.registration.batch_size
        return self.queue.is_unit(len(group.tokens), self._wanted(group.env_id), size)

    def _queue(self, added: int, group: Group) -> bool:
        if self.registration is None:
            self.waiting.append(Row(added, group.env_id, len(group.tokens), None, None))
            return True
        return self._place(added, group.env_id, len(group.tokens), stored=self._is_unit(group))

    def _count(self, group: Group, body: bytes, ready: bool) -> None:
        now = self._clock()
        size = len(group.tokens)
        self.latest = body
        self.counts.groups += 1
        self.counts.sequences += size
        self.counts.buffered += not ready
        if (env := self.envs.touch(group.env_id)) is not None:
            env.exempt = False
            env.groups += 1
            env.sequences += size
            remember(env.recent, now)
        remember(self.counts.recent, now)

    # -- batches

    def next_batch(self, lease: float | None = None) -> Batch | None:
        """The next batch, lent for `lease` seconds or given for good; None: there is none yet.

        A batch whose lease has ended comes first, whole and with the id that it had.
        """
        if not self.started:
            self._store.set_fact("started", True)
            self.started = True
        while (again := self._expired()) is not None:
            if (batch := self._redeliver(again, lease)) is not None:
                return batch
        while (units := self._form()) is not None:
            groups = self._store.read([group for unit in units for group in unit.groups])
            if all(group.body is not None for group in groups):
                return self._send(units, groups, lease)
            self._drop([group.id for group in groups if group.body is None])
        return None

    def _form(self) -> list[Unit] | None:
        if self.registration is None:
            return None
        size = self.registration.batch_size
        least = self.envs.minimums(size)
        units = self.queue.next(size, least)
        if units is not None or not least:
            self._waits_since = None
            return units
        free = self.queue.next(size, {})
        if free is None:
            self._waits_since = None
            return None
        now = self._clock()
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since < self._limits.allocation_timeout:
            return None
        self._waits_since = None
        for env in least:
            if (found := self.envs.get(env)) is not None:
                found.exempt = self.queue.sequences_of(env) < least[env]
        return self.queue.next(size, self.envs.minimums(size)) or free

    def _send(self, units: list[Unit], groups: list[Stored], lease: float | None) -> Batch:
        number = None if lease is None else self._last_batch + 1
        expires = None if lease is None else self._clock() + lease
        ids = [group.id for group in groups]
        with self._store.transaction():
            self._store.set_fact("step", self.step + 1)
            if number is None or expires is None:
                self._store.set_fact("last_group", max(ids))
                self._store.remove(ids)
            else:
                self._store.set_fact("last_batch", number)
                self._store.lease(number, ids, expires)
        self.queue.take(units)
        self._store.tidy()
        if number is not None and expires is not None:
            self._last_batch = number
            self._leases[number] = expires
            self._lent[number] = (len(groups), sum(group.size for group in groups))
        for group in groups:
            if (env := self.envs.get(group.env)) is not None:
                env.served += 1
                env.lag += max(0, self.step - group.step)
        self.step += 1
        self.counts.batches += 1
        self.counts.served += len(groups)
        return Batch(groups, number, expires)

    def _expired(self) -> int | None:
        now = self._clock()
        return next((batch for batch, expires in self._leases.items() if expires <= now), None)

    def overdue(self) -> bool:
        """Is a batch waiting that a trainer did not acknowledge in time?"""
        return self._expired() is not None

    def _redeliver(self, batch: int, lease: float | None) -> Batch | None:
        groups = self._store.read(self._store.groups_of(batch))
        if any(group.body is None for group in groups):
            self._drop([group.id for group in groups if group.body is None])
            groups = [group for group in groups if group.body is not None]
        if not groups:
            self._end(batch, [])
            return None
        if self.registration is not None and sum(group.size for group in groups) != self.registration.batch_size:
            self._take_apart(batch)
            return None
        self.counts.redelivered += 1
        if lease is None:
            self._end(batch, [group.id for group in groups])
            return Batch(groups)
        expires = self._clock() + lease
        self._store.set_expiry(batch, expires)
        self._leases[batch] = expires
        return Batch(groups, batch, expires)

    def _take_apart(self, batch: int) -> None:
        """The trainer of now wants batches of another size: the groups are queued again, where they were."""
        try:
            with self._store.transaction():
                self._store.set_fact("taken_apart", [*self._taken_apart, batch])
                self._store.release(batch)
                self._store.unpack()
                self._read()
                self._place_waiting()
        except BaseException:
            self._load()
            raise

    def _end(self, batch: int, groups: list[int]) -> None:
        with self._store.transaction():
            self._store.remove(groups)
            self._store.end_batch(batch)
        self._leases.pop(batch, None)
        self._lent.pop(batch, None)
        self._store.tidy()

    def _drop(self, groups: list[int]) -> None:
        """Groups whose bodies a power failure took."""
        self.counts.damaged += len(groups)
        with self._store.transaction():
            self._store.remove(groups)
        self._load()

    def acknowledge(self, batch: int) -> bool:
        """A trainer is done with a batch. True again for one that was acknowledged before, False for one unknown."""
        if batch in self._leases:
            self._end(batch, self._store.groups_of(batch))
            self.counts.acknowledged += 1
            return True
        return self._first_batch <= batch <= self._last_batch and batch not in self._taken_apart

    def renew(self, batch: int, lease: float) -> float | None:
        """Lend a batch longer (0: take it back); the new end, or None if no trainer has it."""
        if batch not in self._leases:
            return None
        expires = self._clock() + lease
        self._store.set_expiry(batch, expires)
        self._leases[batch] = expires
        return expires

    @property
    def lent(self) -> dict[int, tuple[float, int, int]]:
        """Batches with trainers: until when, groups, sequences."""
        return {batch: (expires, *self._lent.get(batch, (0, 0))) for batch, expires in self._leases.items()}

    def reset(self) -> None:
        """Forget trainer and data. Environments keep their ids, so that running ones continue."""
        self._store.clear({"last_batch": self._last_batch, "first_batch": self._last_batch + 1})
        self.latest = None
        self.envs.forget()
        self._load()

    def close(self) -> None:
        self._store.close()
