"""The processes that play games, and the sessions they host.

A session stays with one process. When that process dies, the session is started again in its
successor and the commands played so far are replayed, which gives the same state: games are
deterministic. A session that was being asked when the process died is retried alone, so that one
that kills its process is found out and fails alone; one whose call hangs fails at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from atropos_textworld.engine.errors import EngineError
from atropos_textworld.engine.observation import Observation
from atropos_textworld.engine.process import CallFailed, CallTimeout, ProcessDied, WorkerProcess
from atropos_textworld.engine.worker import PLAY_THREADS

OPEN_DEADLINE = 60.0
"""Seconds for a process to import TextWorld and start a game; starts anew with each replayed command."""
CLOSE_DEADLINE = 5.0
MOST_SHARED = 16
"""Rollouts of one game that share a process, which plays their steps one after the other."""

T = TypeVar("T")
Locate = Callable[[], Awaitable[Path]]


class Seat:
    """The place of one process. Calls beyond PLAY_THREADS wait here, outside their deadline."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.sessions = 0
        self.games: Counter[str] = Counter()
        self.process: WorkerProcess | None = None
        self._turns = asyncio.Semaphore(PLAY_THREADS)
        self._alone = asyncio.Lock()
        self._starting = asyncio.Lock()

    async def running(self) -> WorkerProcess:
        """The process, started now if there is none."""
        async with self._starting:
            if self.process is None or self.process.died is not None:
                if self.process is not None:
                    await self.process.kill()
                self.process = await WorkerProcess.start("play", self._root)
            return self.process

    @asynccontextmanager
    async def turn(self, *, alone: bool) -> AsyncIterator[None]:
        """Hold one of the process's threads, or all of them."""
        async with contextlib.AsyncExitStack() as stack:
            if alone:
                await stack.enter_async_context(self._alone)
            for _ in range(PLAY_THREADS if alone else 1):
                await stack.enter_async_context(self._turns)
            yield

    async def close(self) -> None:
        """End the process."""
        async with self._starting:
            if self.process is not None:
                await self.process.close()


class Session:
    """One game being played. `last` is the newest observation."""

    last: Observation

    def __init__(self, name: str, seat: Seat, game: str, locate: Locate, step_deadline: float) -> None:
        self._name = name
        self._seat = seat
        self._game = game
        seat.sessions += 1
        seat.games[game] += 1
        self._locate = locate
        self._step_deadline = step_deadline
        self._log: list[str] = []
        self._home: WorkerProcess | None = None
        self._deaths = 0

    async def start(self) -> Observation:
        """Start the game. Raises EngineError."""
        self.last = await self._perform(None, self._started)
        return self.last

    async def step(self, command: str) -> Observation:
        """Play a sanitised command. Raises EngineError; the session is then of no more use."""

        async def ask(process: WorkerProcess) -> Observation:
            answer = await process.call("step", self._step_deadline, session=self._name, command=command)
            return Observation.from_json(answer)

        self.last = await self._perform(command, ask)
        self._log.append(command)
        return self.last

    async def peek(self, commands: Sequence[str]) -> list[Observation]:
        """What each of these commands would lead to, from here; none is played. Raises EngineError, as step does."""

        async def ask(process: WorkerProcess) -> list[Observation]:
            answer = await process.call("peek", self._step_deadline, session=self._name, commands=list(commands))
            return [Observation.from_json(item) for item in answer]

        return await self._perform(" / ".join(commands), ask) if commands else []

    async def _started(self, process: WorkerProcess) -> Observation:
        return self.last

    async def _perform(self, what: str | None, ask: Callable[[WorkerProcess], Awaitable[T]]) -> T:
        """Ask the process that plays this game, which is started and brought up to date when it is a new one."""
        while True:
            async with self._seat.turn(alone=self._deaths > 0):
                process = await self._seat.running()
                try:
                    if self._home is not process:
                        self.last = await self._open(process)
                        self._home = process
                    answer = await ask(process)
                except ProcessDied as death:
                    # Killed for somebody else's sake is not our fault; dying with us twice is.
                    self._deaths += not death.killed
                    if self._deaths > 1:
                        raise EngineError(f"the game process died twice on {_what(what)}: {death}") from death
                except CallTimeout as timeout:
                    await process.kill()
                    raise EngineError(f"the game hung on {_what(what)}: {timeout}") from timeout
                except CallFailed as failure:
                    raise EngineError(
                        f"the game failed on {_what(what)}: {failure.type}: {failure.message}"
                    ) from failure
                else:
                    self._deaths = 0
                    return answer

    async def _open(self, process: WorkerProcess) -> Observation:
        """Start the game in this process and replay what was played."""
        path = await self._locate()
        try:
            answer = await self._open_at(process, path)
        except CallFailed as failure:
            if failure.type != "FileNotFoundError":
                raise
            # Another process removed the game from the cache a moment ago.
            answer = await self._open_at(process, await self._locate())
        observation = Observation.from_json(answer)
        if self._home is not None and observation != self.last:
            raise EngineError("a replayed game went differently: " + repr(observation.text[:200]))
        return observation

    async def _open_at(self, process: WorkerProcess, path: Path) -> dict[str, object]:
        answer: dict[str, object] = await process.call(
            "open", OPEN_DEADLINE, session=self._name, path=str(path), commands=self._log
        )
        return answer

    async def close(self) -> None:
        """Free the game. Never raises."""
        self._seat.sessions -= 1
        self._seat.games[self._game] -= 1
        self._seat.games += Counter()
        home = self._home
        if home is not None and home.died is None:
            with contextlib.suppress(CallFailed, CallTimeout, ProcessDied):
                await home.call("close", CLOSE_DEADLINE, session=self._name)


def _what(command: str | None) -> str:
    return "its start" if command is None else f"command {command!r}"


class Fleet:
    """`size` processes under `root`."""

    def __init__(self, root: Path, size: int, step_deadline: float) -> None:
        self._seats = [Seat(root) for _ in range(size)]
        self._step_deadline = step_deadline
        self._names = itertools.count(1)

    async def warm(self) -> None:
        """Start all processes; returns without waiting for them to be ready."""
        for seat in self._seats:
            await seat.running()

    async def open(self, game: str, locate: Locate) -> Session:
        """A started session, in a process that plays this game already or else in the one with the fewest sessions.

        `game` tells games apart; `locate` says where the file is. Raises EngineError.
        """
        at_it = [seat for seat in self._seats if 0 < seat.games[game] < MOST_SHARED]
        seat = min(at_it or self._seats, key=lambda seat: seat.sessions)
        session = Session(f"s{next(self._names)}", seat, game, locate, self._step_deadline)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        return session

    def pids(self) -> list[int]:
        """Process ids of the running processes."""
        return [s.process.pid for s in self._seats if s.process is not None and s.process.died is None]

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(seat.close() for seat in self._seats))
