"""A worker process as its parent sees it: start it, ask it with a deadline, end it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from atropos_textworld.engine.protocol import Frame, ProtocolError, encode, receive_async

Role = Literal["play", "build"]

PACKAGE_PARENT = Path(__file__).parent.parent.parent
GRACE = 2.0
"""Seconds a worker has to leave by itself when it is closed."""

_REMOVED_FROM_ENVIRONMENT = ("TEXTWORLD_DEBUG", "TEXTWORLD_I6_DEBUG", "INFORM_HOME", "PYTHONSTARTUP")
"""Would leave files behind, switch on debugging verbs in games, or compile with another compiler."""


class ProcessDied(Exception):
    """The process ended while it was asked. `killed` when we ended it because another call hung."""

    def __init__(self, message: str, *, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed


class CallTimeout(Exception):
    """No answer within the deadline; the process cannot be used any more."""


class CallFailed(Exception):
    """The worker answered with an error. `type` is the name of its exception class."""

    def __init__(self, type_: str, message: str) -> None:
        super().__init__(message)
        self.type = type_
        self.message = message


class WorkerProcess:
    """One worker. Create with `await WorkerProcess.start(...)`; not usable after `died`."""

    def __init__(self, role: Role, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.role = role
        self.folder = folder
        self.died: str | None = None
        self._killed = False
        self._process = process
        self._calls: dict[int, asyncio.Queue[Frame | None]] = {}
        self._ids = itertools.count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The process id; also its process group."""
        return self._process.pid

    @classmethod
    async def start(cls, role: Role, root: Path) -> WorkerProcess:
        """Start a worker whose working directory is a new folder under `root`."""
        # Started here, not in a thread: the kernel ends a worker together with the thread that made it.
        process, connection, folder = _spawn(role, root)
        worker = cls(role, process, folder)
        reader, worker._writer = await asyncio.open_unix_connection(sock=connection)
        worker._listening = asyncio.create_task(worker._listen(reader))
        return worker

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while (frame := await receive_async(reader)) is not None:
                queue = self._calls.get(int(frame.get("id", 0)))
                if queue is not None:
                    queue.put_nowait(frame)
        except ProtocolError as error:
            self.died = f"it sent what it should not: {error}"
        finally:
            await self._mark_dead()

    async def _mark_dead(self) -> None:
        if self.died is None:
            with contextlib.suppress(TimeoutError):
                # The socket closes a moment before the process can be collected.
                await asyncio.wait_for(self._exited(), 0.5)
            self.died = _ending(self._process.returncode) + self._last_words()
        for queue in self._calls.values():
            queue.put_nowait(None)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self.folder / "stderr.log").read_text(errors="replace").strip().splitlines()
            if lines:
                return f" (last line of its log: {lines[-1][:200]})"
        return ""

    async def call(self, op: str, deadline: float, **fields: Any) -> Any:
        """Ask and wait `deadline` seconds for the answer, or for a notice that starts them anew.

        Raises CallFailed, CallTimeout or ProcessDied. After CallTimeout the caller must `kill()`.
        """
        if self.died is not None:
            raise ProcessDied(self.died, killed=self._killed)
        assert self._writer is not None
        number = next(self._ids)
        answers: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._calls[number] = answers
        try:
            self._writer.write(encode({"id": number, "op": op, **fields}))
            while True:
                try:
                    frame = await asyncio.wait_for(answers.get(), deadline)
                except TimeoutError:
                    raise CallTimeout(f"no answer to {op!r} in {deadline:g} s") from None
                if frame is None:
                    raise ProcessDied(self.died or "it ended", killed=self._killed)
                if "error" in frame:
                    raise CallFailed(str(frame["error"]["type"]), str(frame["error"]["message"]))
                if "value" in frame:
                    return frame["value"]
        finally:
            del self._calls[number]

    async def kill(self) -> None:
        """End the process and what it started, now. Calls still waiting raise ProcessDied."""
        self._killed = True
        self.died = self.died or "it was stopped because a call hung"
        await self._collect()

    async def close(self) -> None:
        """Let the process leave by itself; end it if it does not."""
        self._killed = True
        self.died = self.died or "it was closed"
        if self._writer is not None:
            self._writer.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited(), GRACE)
        await self._collect()

    async def _exited(self) -> None:
        while self._process.poll() is None:  # noqa: ASYNC110  a process has no event to wait for
            await asyncio.sleep(0.01)

    async def _collect(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        await self._exited()
        if self._writer is not None:
            self._writer.close()
        if self._listening is not None:
            await asyncio.gather(self._listening, return_exceptions=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _spawn(role: Role, root: Path) -> tuple[subprocess.Popen[bytes], socket.socket, Path]:
    """The process, the socket to it, and its folder."""
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{role}-", dir=root))
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "atropos_textworld.engine.worker", role, str(os.getpid())]
    with theirs, (folder / "stderr.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  our own module, no text from outside
            command,
            stdin=theirs.fileno(),
            stdout=log,
            stderr=log,
            cwd=folder,
            env=_environment(os.environ, folder),
            start_new_session=True,
        )
    return process, ours, folder


def _environment(outer: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The parent's environment, with temporary files in the worker's folder and this package importable."""
    kept = {name: value for name, value in outer.items() if name not in _REMOVED_FROM_ENVIRONMENT}
    paths = [str(PACKAGE_PARENT), *filter(None, [outer.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        # Some challenges depend on the order of sets of strings.
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
    }


def _ending(code: int | None) -> str:
    if code is None:
        return "it closed its connection"
    if code < 0:
        try:
            return f"it was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was ended by signal {-code}"
    return f"it ended with exit status {code}"
