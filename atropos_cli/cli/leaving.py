"""The end of the program, whatever threads plugins and environments have left behind."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import sys
import threading
import time

LINGER = 20.0  # seconds


class Leaving:
    """Made before anything of a plugin is imported, so that its functions at exit are done when ours is called."""

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._last)

    def with_code(self, code: int) -> None:
        """All is written: end with this code, in LINGER seconds at the latest."""
        self._code = code
        threading.Thread(target=_end_anyway, args=(code,), name="end", daemon=True).start()

    def _last(self) -> None:
        """End without Python's own last steps if threads still run: those would end a thread that wants to continue.

        A thread that is inside compiled code then (pydantic's serializer, torch) takes the whole process with it, by
        SIGABRT: a run that is finished and written would end with 134.
        """
        if self._code is None or not any(one.daemon and one.name != "end" for one in threading.enumerate()):
            return
        for item in gc.get_objects():
            if type(item) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
                with contextlib.suppress(Exception):  # closed, or the disk is full
                    item.flush()
        os._exit(self._code)


def _end_anyway(code: int) -> None:
    """End the program when something that a plugin left behind keeps it from ending: all is written by now."""
    time.sleep(LINGER)
    names = [item.name for item in threading.enumerate() if not item.daemon and item is not threading.main_thread()]
    what = f"threads that are left running ({', '.join(names)})" if names else "a function that runs at exit"
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"warning: {what} kept the program from ending; it is ended after {LINGER:.0f} s\n")
        sys.stderr.flush()
    os._exit(code)
