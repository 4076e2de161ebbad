"""The writer of a run whose groups are pushed to a trajectory server: it stores them, then hands them to a sender.

Each member of a mixture is an environment of the server, with its own weight.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.selection import Member
from atropos_cli.errors import AtroposError, DataError
from atropos_cli.io.sources import Source
from atropos_cli.ports.backend import InferenceBackend
from atropos_cli.ports.writer import Writer
from atropos_cli.rollout.delivery import Sender
from atropos_cli.rollout.following import Follower
from atropos_cli.rollout.sessions import read_group
from atropos_cli.rollout.stopping import Abort


class Pushed(Writer):
    """Another writer, and a sender beside it."""

    def __init__(self, writer: Writer, plan: Plan, env_name: str, on_event: Callable[[str, str], None]) -> None:
        super().__init__(writer.config)
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._on_event = on_event
        self._woken: Callable[[], object] = lambda: None
        plans = {member.name: _own_plan(plan, member) for member in plan.mixture} or {env_name: plan}
        self._senders = {name: Sender(own, name, self._event, self._wake) for name, own in plans.items()}
        self._follower: Follower | None = None
        self._backend: InferenceBackend | None = None
        self._error: AtroposError | None = None
        self.examines = plan.delivery.eval_every is not None
        """Held-out tasks are being played, or are to be before the first group."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return self._writer.name

    @property
    def filename(self) -> str | None:  # type: ignore[override]
        return self._writer.filename

    def wakes(self, woken: Callable[[], object]) -> None:
        self._woken = woken

    def follow(self, backend: InferenceBackend) -> asyncio.Task[None]:
        """Give the backend the trainer's weights, now and whenever they change. Cancel the task to end it."""
        self._backend = backend
        self._follower = follower = Follower(backend, self._on_event)
        sender = next(iter(self._senders.values()))  # all have the same trainer
        return asyncio.create_task(follower.follow(lambda: sender.trainer_folder, lambda: self._woken()))

    @property
    def step(self) -> int | None:
        """The steps that the weights have had, or if that is not known the trainer; None before it has registered."""
        if self._backend is None or self._follower is None or not self._follower.ready:
            return None
        sender = next(iter(self._senders.values()))
        return sender.step if self._backend.weights_version is None else self._backend.weights_version

    @contextlib.asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """No group starts meanwhile, and no weights change."""
        assert self._follower is not None
        self.examines = True
        async with self._follower.still:
            yield
        self.examines = False
        self._woken()

    def fails(self, error: AtroposError) -> None:
        """End the run."""
        self._error = error
        self._woken()

    def _wake(self) -> None:
        self._soon(self._woken)

    def _event(self, kind: str, text: str) -> None:
        self._soon(self._on_event, kind, text)

    def _soon(self, call: Callable[..., object], *arguments: object) -> None:
        """From the sender's thread; the loop may have ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)

    def open(self, folder: Path | None, *, prefix: str, fsync: str = "interval") -> Iterator[int]:
        if folder is None:
            raise DataError("--to needs a run folder, which keeps unsent groups", hint="drop -o -")
        yield from self._writer.open(folder, prefix=prefix, fsync=fsync)
        for name, sender in self._senders.items():
            stored = self._stored(folder)
            mixed = len(self._senders) > 1
            sender.begin(folder, (group for group in stored if group.env == name) if mixed else stored)

    def _stored(self, folder: Path) -> Iterator[ScoredGroup]:
        """The groups that are there now; those that are written later are handed over by `write`."""
        path = folder / str(self.filename)
        if not path.exists():
            return iter(())
        size = path.stat().st_size

        def read() -> Iterator[ScoredGroup]:
            if path.suffix != ".jsonl":
                with Source(str(path), path, "lines").open(0) as file:
                    yield from [read_group(line, str(path)) for line in file]
                return
            left = size
            with path.open("rb") as file:
                while left > 0:
                    line = file.readline()
                    left -= len(line)
                    yield read_group(line, str(path))

        return read() if size else iter(())

    def write(self, groups: tuple[ScoredGroup, ...]) -> None:
        self._writer.write(groups)
        if len(self._senders) == 1:
            next(iter(self._senders.values())).put(groups)
        else:
            self._senders[groups[0].env].put(groups)

    @property
    def held(self) -> bool:
        """Raises Abort when nothing more can be sent: groups that no trainer takes are not worth their tokens."""
        follower = self._follower
        parts = [*self._senders.values(), *(() if follower is None else (follower,))]
        if error := next((part.error for part in parts if part.error is not None), self._error):
            raise Abort(error)
        # A trainer that lacks groups of one member takes none of the others: only all together hold the run.
        full = all(sender.held for sender in self._senders.values())
        return full or self.examines or (follower is not None and not follower.ready)

    async def flush(self, stop: asyncio.Event) -> None:
        """Wait until the server has the stored groups; after `stop` the next session sends the rest. Raises Abort."""
        while self.examines or any(sender.pending for sender in self._senders.values()):
            if stop.is_set() or self._error is not None:
                break
            await asyncio.sleep(0.05)
        if self._error is not None and not stop.is_set():
            raise Abort(self._error)
        for sender in self._senders.values():
            if sender.error is not None and not stop.is_set():
                raise Abort(sender.error)

    def close(self) -> None:
        self._writer.close()
        for name, sender in self._senders.items():
            of = f" of {name}" if len(self._senders) > 1 else ""
            self._on_event("delivery", f"groups{of} sent: {sender.end()}")


def _own_plan(plan: Plan, member: Member) -> Plan:
    """The plan with the group size of a member, its weight and its part of the share."""
    part = member.weight / sum(one.weight for one in plan.mixture)
    share = None if plan.delivery.to_share is None else plan.delivery.to_share * part
    delivery = plan.delivery.replace(to_weight=plan.delivery.to_weight * member.weight, to_share=share)
    found: Plan = plan.replace(group_size=member.group_size or plan.group_size, delivery=delivery)
    return found
