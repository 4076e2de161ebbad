"""The writer of a run whose groups are pushed to a trajectory server: it stores them, then hands them to the sender."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.errors import DataError
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
        self._sender = Sender(plan, env_name, self._event, self._wake)
        self._follower: Follower | None = None

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
        self._follower = follower = Follower(backend, self._on_event)
        return asyncio.create_task(follower.follow(lambda: self._sender.trainer_folder, lambda: self._woken()))

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
        self._sender.begin(folder, self._stored(folder))

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
        self._sender.put(groups)

    @property
    def held(self) -> bool:
        """Raises Abort when nothing more can be sent: groups that no trainer takes are not worth their tokens."""
        follower = self._follower
        error = self._sender.error or (None if follower is None else follower.error)
        if error is not None:
            raise Abort(error)
        return self._sender.held or (follower is not None and not follower.ready)

    async def flush(self, stop: asyncio.Event) -> None:
        """Wait until the server has the stored groups; after `stop` the next session sends the rest. Raises Abort."""
        while self._sender.pending:
            if stop.is_set():
                return
            await asyncio.sleep(0.05)
        if self._sender.error is not None and not stop.is_set():
            raise Abort(self._sender.error)

    def close(self) -> None:
        self._writer.close()
        self._on_event("delivery", f"groups sent: {self._sender.end()}")
