"""A thread for the tools of one episode, so that a slow one is left behind and the run goes on."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class OutOfTime(TimeoutError):
    """The function did not end in time. A TimeoutError of its own means something else."""


class ToolThread:
    """Calls functions one after the other, always in the same thread: connections to databases ask for that.

    A function that does not end in time keeps its thread, which ends with the program; the next one gets another.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] | None = None

    async def run(self, function: Callable[[], Any], seconds: float) -> Any:
        """What the function returns or raises. Raises OutOfTime after `seconds`."""
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(self._jobs,), name="atropos-tools", daemon=True).start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put((function, future, loop))
        done, _ = await asyncio.wait((future,), timeout=seconds)
        if not done:
            self.close()
            raise OutOfTime
        return future.result()

    def close(self) -> None:
        """Let the thread end after the function at hand."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        function, future, loop = job
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001 - handed to who waits for it
            # A future takes no StopIteration, and only Exceptions may reach the loop.
            told = isinstance(raised, Exception) and not isinstance(raised, StopIteration)
            error = raised if told else RuntimeError(f"{type(raised).__name__}: {raised}")
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:
            return  # the loop has ended, and with it who waited


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
