"""Games made ready before they are asked for.

`prefetch` queues a game for the builder processes; `get` waits for one, ahead of everything that
was only prefetched. What is in the cache is ready at once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from atropos_cli.sdk.isolation import WorkerCrashed, WorkerPool, WorkerTimeout
from atropos_textworld.engine.cache import GameCache, GameRecord
from atropos_textworld.engine.errors import EngineError
from atropos_textworld.engine.process import CallFailed, GameProcess
from atropos_textworld.games.spec import GameSpec

BUILD_DEADLINE = 60.0
"""Seconds to make a game, and again to compile it."""
TRIM_EVERY = 16
NOW, AHEAD = 0, 1


class GamePool:
    """Builds games with `builders` processes under `root` and keeps them in `cache`."""

    def __init__(self, root: Path, cache: GameCache, builders: int) -> None:
        self.cache = cache
        self.built = 0
        self._wanted: dict[GameSpec, asyncio.Future[GameRecord]] = {}
        self._in_work: set[GameSpec] = set()
        self._failed: dict[GameSpec, Exception] = {}
        self._queue: asyncio.PriorityQueue[tuple[int, int, GameSpec]] = asyncio.PriorityQueue()
        self._order = itertools.count()
        self.processes = WorkerPool(lambda: GameProcess.begin("build", root), builders)
        self._count = builders
        self._builders: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to build what is asked for. Builder processes start with their first game."""
        self._builders = [asyncio.create_task(self._build_all()) for _ in range(self._count)]

    def prefetch(self, specs: Iterable[GameSpec]) -> None:
        """Make these games ready, in this order, when nothing more urgent is waiting."""
        for spec in specs:
            if spec not in self._wanted and spec not in self._failed and self.cache.find(spec) is None:
                self._want(spec, AHEAD)

    async def get(self, spec: GameSpec) -> GameRecord:
        """The game of a spec, ready to be played. Raises EngineError when it cannot be made."""
        if spec in self._failed:
            raise self._failed[spec]
        future = self._wanted.get(spec)
        if future is None:
            record = self.cache.find(spec)
            if record is not None:
                return record
            future = self._want(spec, NOW)
        else:
            self._queue.put_nowait((NOW, next(self._order), spec))
        # One waiter that is cancelled must not take the game from the others.
        return await asyncio.shield(future)

    def _want(self, spec: GameSpec, urgency: int) -> asyncio.Future[GameRecord]:
        future: asyncio.Future[GameRecord] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._wanted[spec] = future
        self._queue.put_nowait((urgency, next(self._order), spec))
        return future

    async def _build_all(self) -> None:
        while True:
            _, _, spec = await self._queue.get()
            future = self._wanted.get(spec)
            if future is None or spec in self._in_work:
                continue  # Queued twice: prefetched, then asked for.
            self._in_work.add(spec)
            try:
                future.set_result(await self._build(spec))
            except Exception as error:  # noqa: BLE001  it belongs to whoever waits for this game
                self._failed[spec] = error
                future.set_exception(error)
            finally:
                self._in_work.discard(spec)
                self._wanted.pop(spec, None)

    async def _build(self, spec: GameSpec) -> GameRecord:
        for last in (False, True):
            try:
                answer = await self._asked(spec)
            except CallFailed as failure:
                raise EngineError(f"game {spec.id} cannot be made: {failure.type}: {failure.message}") from failure
            except WorkerTimeout as late:
                raise EngineError(f"game {spec.id} cannot be made: {late}") from late
            except WorkerCrashed as death:
                if last:
                    raise EngineError(f"game {spec.id} cannot be made: the builder died twice: {death}") from death
            else:
                self.built += 1
                if self.built % TRIM_EVERY == 0:
                    await asyncio.to_thread(self.cache.trim, frozenset({answer["key"]}))
                return GameRecord.from_json(answer)
        raise AssertionError("unreachable")

    async def _asked(self, spec: GameSpec) -> Any:
        where = {"cache": str(self.cache.root), "max_bytes": self.cache.max_bytes}
        async with self.processes.lease() as process:
            try:
                return await process.ask("build", BUILD_DEADLINE, spec=spec.as_json(), **where)
            except CallFailed as failure:
                failed = failure  # the process is as good as before
        raise failed

    async def close(self) -> None:
        """Stop building and end the builder processes."""
        for task in self._builders:
            task.cancel()
        await asyncio.gather(*self._builders, return_exceptions=True)
        for future in self._wanted.values():
            future.cancel()
        await self.processes.close()
        await asyncio.to_thread(self.cache.trim)
