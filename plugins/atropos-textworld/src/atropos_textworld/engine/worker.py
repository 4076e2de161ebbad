"""The program of a worker process: plays games, or builds them.

Started by `process.GameProcess` with the role, play or build. The working directory is a private folder. When the
parent goes, however it goes, the channel to it closes: the worker then removes its folder and ends, together with
any compiler it started. A request {"id": 7, "op": "step", ...} is answered by {"id": 7, "value": ...}, by
{"id": 7, "error": {"type": ..., "message": ...}}, or first by notices, {"id": 7, "phase": "compile"}, with each of
which its deadline starts anew.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_textworld.engine.runfolder import remove_abandoned

if TYPE_CHECKING:
    from atropos_cli.sdk.isolation import WorkerChannel

PLAY_THREADS = 4
"""Steps at a time in one process; more than half of a step runs without Python's lock."""

PR_SET_PDEATHSIG = 1
LAST_TRIES = 5

Frame = dict[str, Any]
Handler = Callable[[Frame, Callable[[str], None]], Any]


def play_handlers() -> dict[str, Handler]:
    """Operations of a process that plays games."""
    from atropos_textworld.engine.session import GameSession, Library

    library = Library()
    library.warm()
    sessions: dict[str, GameSession] = {}

    def open_(frame: Frame, phase: Callable[[str], None]) -> Any:
        session = GameSession(library, Path(frame["path"]))
        try:
            for command in frame["commands"]:
                session.step(command)
                phase("replay")
        except BaseException:
            session.close()
            raise
        sessions[frame["session"]] = session
        return session.last.as_json()

    def step(frame: Frame, phase: Callable[[str], None]) -> Any:
        return sessions[frame["session"]].step(frame["command"]).as_json()

    def peek(frame: Frame, phase: Callable[[str], None]) -> Any:
        seen = sessions[frame["session"]].peek(frame["commands"], lambda: phase("peek"))
        return [observation.as_json() for observation in seen]

    def close(frame: Frame, phase: Callable[[str], None]) -> Any:
        session = sessions.pop(frame["session"], None)
        if session is not None:
            session.close()
        return len(sessions)

    return {"open": open_, "step": step, "peek": peek, "close": close}


def build_handlers() -> dict[str, Handler]:
    """Operations of a process that builds games. One at a time: generating is not thread-safe."""
    from atropos_textworld.engine.build import build
    from atropos_textworld.engine.cache import GameCache
    from atropos_textworld.games.knowledge import share_knowledge_bases
    from atropos_textworld.games.spec import GameSpec

    share_knowledge_bases()

    def make(frame: Frame, phase: Callable[[str], None]) -> Any:
        cache = GameCache(Path(frame["cache"]), frame["max_bytes"])
        return build(GameSpec.from_json(frame["spec"]), cache, phase).as_json()

    return {"build": make}


class Worker:
    """Answers requests until the parent closes the socket."""

    def __init__(self, channel: WorkerChannel, handlers: dict[str, Handler], threads: int) -> None:
        self.channel = channel
        self.handlers = handlers
        self._threads = ThreadPoolExecutor(threads)

    def run(self) -> None:
        """Returns when the parent is gone."""
        while (frame := self.channel.receive()) is not None:
            self._threads.submit(self._answer, frame)

    def _answer(self, frame: Frame) -> None:
        def phase(name: str) -> None:
            self.channel.send({"id": frame["id"], "phase": name})

        try:
            answer: Frame = {"id": frame["id"], "value": self.handlers[frame["op"]](frame, phase)}
        except Exception as error:  # noqa: BLE001  the parent decides what an error means
            traceback.print_exc()
            answer = {"id": frame["id"], "error": {"type": type(error).__name__, "message": str(error)}}
        self.channel.send(answer)


def leave() -> None:
    """Stop the compilers this process started, remove its folder and end at once.

    Threads are not waited for: one may be lost in the interpreter for good. If the parent is gone,
    the folder of the whole run goes too.
    """
    if os.getpgrp() == os.getpid():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
    folder = Path.cwd()
    shutil.rmtree(folder, ignore_errors=True)
    for _ in range(LAST_TRIES):
        # A parent that was killed may take a moment to let go of its lock.
        if remove_abandoned(folder.parent):
            break
        time.sleep(0.02)
    os._exit(0)


def main(channel: WorkerChannel, role: str) -> None:
    """Set up the process and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle.
    signal.signal(signal.SIGTERM, lambda *_: leave())
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        leave()
    try:
        handlers, threads = (build_handlers(), 1) if role == "build" else (play_handlers(), PLAY_THREADS)
        Worker(channel, handlers, threads).run()
    except Exception:  # noqa: BLE001  whatever it was, the folder must go
        traceback.print_exc()
    leave()
