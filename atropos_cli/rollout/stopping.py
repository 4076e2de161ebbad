"""What ends a run before its last group, raised where requests wait. No plugin swallows it by accident."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import FrameType
from typing import TypeVar

from atropos_cli.errors import AtroposError, ExitCode

T = TypeVar("T")
TOO_LATE = "it was not done when the group's time was over"
_LEAST_S = 10.0
_AT_ONCE_S = 3.0


class Draining(BaseException):
    """The run is being stopped, and this group has not cost anything yet."""


class RewardTimeout(Exception):
    """A reward was not done when its group's time was over."""


class Abort(BaseException):
    """The whole run must end with `error`. Not an Exception, so that no plugin swallows it by accident."""

    def __init__(self, error: AtroposError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def as_failures() -> Iterator[None]:
    """For calls of plugins: an end of theirs that is not ours is an error, and fails what called.

    A cancelled task of a plugin's own would else look like the end of the run, and its groups be lost in silence; a
    panic of compiled code, which is not an Exception either, would end the program.
    """
    try:
        yield
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit, Abort, Draining):
        raise
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        raise RuntimeError("it was cancelled") from error
    except BaseException as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


async def awaited(awaitable: Awaitable[T], seconds: float, over_time: type[Exception]) -> T:
    """A plugin's answer. Raises `over_time` where it takes longer."""
    try:
        async with asyncio.timeout(seconds) as scope:
            with as_failures():
                return await awaitable
    except TimeoutError as error:
        if scope.expired():
            raise over_time from error
        raise


@contextlib.asynccontextmanager
async def ended_by(stop: asyncio.Event) -> AsyncIterator[None]:
    """What is awaited within is cancelled when `stop` is set, and Draining is raised: a model may load for minutes."""
    task = asyncio.current_task()
    assert task is not None
    cancelled = False

    async def cancel() -> None:
        nonlocal cancelled
        await stop.wait()
        cancelled = task.cancel()

    watcher = asyncio.create_task(cancel())
    try:
        yield
    except asyncio.CancelledError:
        if not cancelled or task.uncancel():
            raise
        raise Draining from None
    finally:
        watcher.cancel()


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], object], drain: Callable[[], float]) -> Iterator[None]:
    """SIGINT and SIGTERM call `stop`; in the main thread only.

    What keeps the run from ending ends with the program: 10 s after `drain`, 3 s after a second signal, by a third.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    timers: list[threading.Timer] = []

    def on_signal(number: int, frame: FrameType | None) -> None:
        patience = (drain() + _LEAST_S, _AT_ONCE_S, 0.0)[min(len(timers), 2)]
        timers.append(threading.Timer(patience, leave, [ExitCode.INTERRUPTED, "something kept the run from ending"]))
        timers[-1].daemon = True
        timers[-1].start()
        stop()

    old = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in old.items():
            signal.signal(number, handler)


def leave(code: int, why: str) -> None:
    """End the program here and now: a thread of it can no longer be reached."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"error: {why}; the program is ended, what was written is kept\n")
        sys.stderr.flush()
    os._exit(code)
