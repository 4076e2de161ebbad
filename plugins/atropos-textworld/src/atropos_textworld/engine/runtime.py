"""Everything that runs while an environment is open: the cache, the builders and the players."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from atropos_textworld.engine.cache import GameCache, GameRecord, default_root
from atropos_textworld.engine.errors import EngineError
from atropos_textworld.engine.fleet import Fleet, Session
from atropos_textworld.engine.pool import GamePool
from atropos_textworld.engine.runfolder import RunFolder
from atropos_textworld.games.spec import GameSpec

MOST_PROCESSES = 16


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Runtime:
    """Open with `await Runtime.open(...)`; close() ends all processes and removes all temporary files."""

    def __init__(self, folder: RunFolder, pool: GamePool, fleet: Fleet) -> None:
        self.folder = folder
        self.pool = pool
        self.fleet = fleet
        self._loop = asyncio.get_running_loop()
        self._warming: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, *, workers: int, processes: int, cache_bytes: int, step_deadline: float) -> Runtime:
        """`processes` is how many will play, or 0 for as many as the workers can keep busy."""
        place = default_root()
        try:
            cache = await asyncio.to_thread(GameCache, place, cache_bytes)
        except OSError as error:
            raise EngineError(
                f"the game cache {place} cannot be used: {error.strerror}",
                hint="set XDG_CACHE_HOME to a folder that you can write to",
            ) from error
        folder = await asyncio.to_thread(RunFolder)
        size = processes or max(1, min(workers, cores(), MOST_PROCESSES))
        pool = GamePool(folder.path, cache, builders=_builders())
        runtime = cls(folder, pool, Fleet(folder.path, size, step_deadline))
        runtime.pool.start()
        return runtime

    def prefetch(self, specs: Iterable[GameSpec]) -> None:
        """Make games ready in the background. May be called from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.pool.prefetch, list(specs))

    async def play(self, spec: GameSpec) -> tuple[GameRecord, Session]:
        """Start a game. Raises EngineError."""
        if self._warming is None:
            # The players import TextWorld while the first game is built.
            self._warming = asyncio.create_task(self.fleet.warm())
        record = await self.pool.get(spec)

        async def locate() -> Path:
            return self.pool.cache.game_path((await self.pool.get(spec)).key)

        return record, await self.fleet.open(record.key, locate)

    async def close(self) -> None:
        """End everything."""
        if self._warming is not None:
            await asyncio.gather(self._warming, return_exceptions=True)
        await self.pool.close()
        await self.fleet.close()
        await asyncio.to_thread(self.folder.remove)


def _builders() -> int:
    """One builder keeps up with about 40 games a minute; more only where there are cores to spare."""
    return max(1, min(4, cores() // 8))
