"""A limit on how long foreign patterns and templates may run: `(a+)+$` or nested loops take longer than anybody waits.

    with time_limit():
        found = pattern.search(text)

Counted is the processor time of the calling thread, so that a busy machine is no reason to stop. The limit holds in
the main thread, where the commands work; Python delivers signals nowhere else. In other threads it holds for what is
written in Python, as templates are, while somebody calls look_at_threads() now and then; counted is the clock there.
"""

from __future__ import annotations

import atexit
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import ClassVar

LIMIT = 5.0  # seconds; what is meant well takes milliseconds
_TICK = 0.5  # seconds of the process between two looks
_MAIN = threading.main_thread().ident


class OverTime(Exception):
    """The time is over. Not for people: say what took so long."""

    def __init__(self) -> None:
        super().__init__(f"not done after {LIMIT:g} s")


class time_limit:  # noqa: N801 - used like a function
    """The block is stopped by OverTime after LIMIT seconds. A limit within a limit changes nothing.

    Cheap enough for every record: the clock ticks by itself while limits are in use, and stops when none is.
    """

    __slots__ = ("_outermost",)
    _inside = False
    _ticking = False
    _since: float | None = None
    """The thread's processor time at the first tick within the block."""
    _elsewhere: ClassVar[dict[int, float]] = {}
    """Threads within a block, with the time of their entry."""

    def __enter__(self) -> None:
        self._outermost = not time_limit._inside and threading.get_ident() == _MAIN
        if threading.get_ident() != _MAIN:
            self._outermost = time_limit._elsewhere.setdefault(threading.get_ident(), now := time.monotonic()) is now
        elif self._outermost:
            if not time_limit._ticking:
                _start()
            time_limit._since = None
            time_limit._inside = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outermost and time_limit._elsewhere.pop(threading.get_ident(), None) is None:
            time_limit._inside = False


def _start() -> None:
    time_limit._ticking = True
    # Python gives signals back to the system as it ends; the system's answer to a tick is to kill the process.
    atexit.unregister(_stop)
    atexit.register(_stop)
    signal.signal(signal.SIGVTALRM, _on_tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, _TICK, _TICK)


def _stop() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, signal.SIG_IGN)


def look_at_threads() -> None:
    """Stop the blocks in other threads that are over time."""
    for thread, since in list(time_limit._elsewhere.items()):
        if time.monotonic() - since >= LIMIT:
            import ctypes

            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(OverTime))


def _on_tick(number: int, frame: FrameType | None) -> None:
    if not time_limit._inside:
        time_limit._ticking = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return
    now = time.thread_time()
    if time_limit._since is None:
        time_limit._since = now
    elif now - time_limit._since >= LIMIT - _TICK:
        raise OverTime
