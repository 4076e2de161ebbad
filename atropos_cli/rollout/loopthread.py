"""An event loop on a thread of its own, while the thread that waits for it runs what is not asynchronous.

    loop = LoopThread(); summary = loop.call(runner.run())      # in the main thread
    values, used = await LoopThread.here().in_caller(calls, 60) # on the loop: run in the main thread, 60 s at most

Rewards are functions of somebody else's that may sleep or loop for ever. In the main thread a signal can break off
whatever runs there, which costs nothing where no time is over; and the loop keeps running meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any, TypeVar, cast

from atropos_cli import timelimit
from atropos_cli.errors import ExitCode
from atropos_cli.rollout.stopping import TOO_LATE, RewardTimeout, leave

T = TypeVar("T")
_LOOK = 0.1
_LOOK_S = 0.5
_TICK = 0.25
_SLICE = 0.05  # seconds of processor time: on a busy machine many times as long by the clock
_AGAIN = 0.5  # seconds until a call that swallowed its end is broken off again
STUCK_S = 10.0
"""Seconds after its time in which a call that no signal reaches may still end."""
STUCK = "a reward or a task ran on after its time, and no signal reached it"
FOREVER = 1e9
_MAIN = threading.main_thread()
_own = threading.local()


class _BrokenOff(BaseException):
    """The time of the call at hand is over. Not an Exception, so that few plugins swallow it."""


class _Job:
    """Calls for the waiting thread. until: when the one at hand is broken off (the next time); None while none runs.

    ends: when its time is over.
    """

    _running: _Job | None = None

    def __init__(self, calls: Sequence[Callable[[], Any]], seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[tuple[list[Any], float]] = loop.create_future()
        self.until: float | None = None
        self.ends: float | None = None
        self.cancelled = False
        self.breakable = False
        self._calls = calls
        self._left = seconds
        self._loop = loop
        self._context = contextvars.copy_context()

    def run(self) -> None:
        """Run the calls one by one. None but the last may use more than half of the time that is left."""
        results: list[Any] = []
        left = self._left
        self.breakable = threading.current_thread() is _MAIN
        if self.breakable:
            if signal.getsignal(signal.SIGPROF) is not _on_tick:
                signal.signal(signal.SIGPROF, _on_tick)
            # The loop's own ticks need the interpreter, which a regular expression does not let go of.
            signal.setitimer(signal.ITIMER_PROF, _SLICE, _SLICE)
        try:
            for number, call in enumerate(self._calls, 1):
                if self.cancelled:
                    return
                began = time.monotonic()
                share = left if number == len(self._calls) else left / 2
                results.append(self._context.run(self._one, call, began + share))
                left = max(0.0, left - (time.monotonic() - began))
        finally:
            if self.breakable:
                signal.setitimer(signal.ITIMER_PROF, 0)
            answer = (results, self._left - left)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver, answer)

    def _one(self, call: Callable[[], Any], until: float) -> Any:
        try:
            try:
                self.until = self.ends = until
                _Job._running = self
                return call()
            finally:
                _Job._running = self.until = self.ends = None
        except _BrokenOff as end:
            _Job._running = self.until = self.ends = None  # it may have come between the call and the line above
            return RewardTimeout(TOO_LATE).with_traceback(end.__traceback__)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this call's value
            return error

    def _deliver(self, answer: tuple[list[Any], float]) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def _on_tick(number: int, frame: FrameType | None) -> None:
    job = _Job._running
    if job is not None and job.until is not None and time.monotonic() >= job.until:
        job.until = time.monotonic() + _AGAIN
        raise _BrokenOff


def _kept(function: Callable[[], T]) -> tuple[T]:
    return (function(),)


class LoopThread:
    """An event loop on a thread; call() runs a coroutine there, waits, and runs what comes from in_caller().

    Of several threads that wait at a time, the first one runs it. The others wait for their results alone.

    on_stuck: called on the loop when no signal breaks off a call in the main thread, STUCK_S after its time.
    """

    def __init__(self) -> None:
        self.on_stuck: Callable[[], object] = partial(leave, ExitCode.FAILED, STUCK)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._serving = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live, name="atropos-rollouts", daemon=True)
        self._thread.start()

    @staticmethod
    def here() -> LoopThread | None:
        """The LoopThread on whose thread this is called."""
        return getattr(_own, "loop_thread", None)

    def _live(self) -> None:
        _own.loop_thread = self
        asyncio.set_event_loop(self._loop)
        while True:
            try:
                return self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # a task's own, which it has as its result: asyncio passes them through the loop besides

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop. For signal handlers; nothing happens after close()."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run the coroutine, and do not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result. Ctrl-C in the waiting thread cancels it."""
        if not self._serving.acquire(blocking=False):
            return self.start(work).result()
        future = self.start(work)
        future.add_done_callback(lambda _: self._jobs.put(None))
        try:
            while not future.done():
                try:
                    job = self._jobs.get(timeout=_LOOK_S)
                except queue.Empty:
                    timelimit.look_at_threads()
                else:
                    if job is not None:
                        job.run()
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            self._serving.release()

    async def in_caller(self, calls: Sequence[Callable[[], Any]], seconds: float) -> tuple[list[Any], float]:
        """What each call returned, raised, or RewardTimeout, and the seconds that it took; one after the other.

        Time spent waiting for the turn does not count. Calls are broken off only where the main thread waits.
        """
        job = _Job(calls, seconds, self._loop)
        self._jobs.put(job)
        timer = self._loop.call_later(_TICK, self._tick, job)
        try:
            return await job.answer
        finally:
            if not job.answer.done() or job.answer.cancelled():
                job.cancelled = True
                self._tick(job)
            else:
                timer.cancel()

    @staticmethod
    async def in_callers_place(function: Callable[[], T]) -> T:
        """The function's result, called in the waiting thread if there is one: for limits that signals keep."""
        if (loop := LoopThread.here()) is None:
            return function()
        ((result,), _) = await loop.in_caller([partial(_kept, function)], FOREVER)
        if isinstance(result, BaseException):
            raise result
        return cast("T", result[0])

    def _tick(self, job: _Job) -> None:
        """Wake a call that sleeps and whose time is over, until it has ended."""
        now, until, ends = time.monotonic(), job.until, job.ends
        if until is not None and ends is not None:
            if job.cancelled and ends > now:
                until = job.until = job.ends = now
            if now >= until and job.breakable:
                signal.pthread_kill(_MAIN.ident or 0, signal.SIGPROF)
            if now >= ends + STUCK_S and job.breakable:
                self.on_stuck()
        if not job.answer.done() or until is not None:
            self._loop.call_later(_TICK, self._tick, job)

    def call_unless(
        self, stopping: Callable[[], bool], work: Coroutine[Any, Any, T], tick: Callable[[], None] = lambda: None
    ) -> T | None:
        """As call(), but the work is cancelled as soon as `stopping` is true: then None, when it has ended.

        tick is called now and then, on the loop's thread.
        """

        async def watched() -> T | None:
            job = asyncio.ensure_future(work)
            while not job.done():
                if stopping():
                    job.cancel()
                    await asyncio.gather(job, return_exceptions=True)
                    return None
                await asyncio.wait({job}, timeout=_LOOK)
                tick()
            return job.result()

        return self.call(watched())

    def close(self) -> None:
        """Cancel what is left, and stop the loop and its thread; what ignores it is left behind."""
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._clear(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            self._loop.close()

    async def _clear(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=1.0)
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # known, and said where it was given up
        await self._loop.shutdown_asyncgens()
