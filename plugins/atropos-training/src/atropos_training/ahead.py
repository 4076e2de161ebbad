"""Groups rolled ahead of the optimiser: as many as are allowed, in the order of places, taken as they come out."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from atropos_cli.sdk import ScoredGroup

Play = Callable[[int], Awaitable[Sequence[ScoredGroup]]]
Played = tuple[int, Sequence[ScoredGroup]]
"""A place, and the groups of its task; none where every rollout failed."""


class Ahead:
    """Made and used on one event loop, but for `idle`. slots: tasks that are played at a time."""

    def __init__(self, play: Play, places: Iterator[int], slots: int) -> None:
        self._play = play
        self._places = places
        self._slots = asyncio.Semaphore(slots)
        self._running: set[asyncio.Task[None]] = set()
        self._ready: deque[Played] = deque()
        self._changed = asyncio.Event()
        self._error: BaseException | None = None
        self._ended = False
        self._left = 0
        self._idle = 0.0
        self._idle_since: float | None = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds up to now in which no task was being played. May be read from another thread."""
        since = self._idle_since
        return self._idle + (0.0 if since is None else time.monotonic() - since)

    @property
    def ready(self) -> int:
        """Tasks that are played and not taken."""
        return len(self._ready)

    def allow(self, more: int) -> None:
        """Let this many further tasks start."""
        self._left += more
        while self._left > 0 and self._error is None and not self._ended:
            place = next(self._places, None)
            if place is None:
                self._ended = True
                break
            self._left -= 1
            if self._idle_since is not None:
                self._idle += time.monotonic() - self._idle_since
                self._idle_since = None
            job = asyncio.create_task(self._one(place))
            self._running.add(job)
            job.add_done_callback(self._over)
        self._changed.set()

    async def take(self) -> Played | None:
        """The next task that is played; None when there is none left. Raises what playing raised."""
        while not self._ready:
            if self._error is not None:
                raise self._error
            if self._ended and not self._running:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._ready.popleft()

    async def close(self) -> None:
        """End what runs."""
        self._ended = True
        jobs = list(self._running)
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    async def _one(self, place: int) -> None:
        async with self._slots:
            self._ready.append((place, await self._play(place)))

    def _over(self, job: asyncio.Task[None]) -> None:
        self._running.discard(job)
        if not job.cancelled() and (error := job.exception()) is not None:
            self._error = self._error or error
        if not self._running:
            self._idle_since = time.monotonic()
        self._changed.set()
