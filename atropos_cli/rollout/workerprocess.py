"""One worker process: starting it, talking to it, noticing that it is gone, killing it with all its children."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from typing import Any

from atropos_cli.errors import PluginError

Message = dict[str, Any]
_HEADER = struct.Struct(">I")
_LONGEST = 1 << 30
_POLL = 0.25


class WorkerGone(Exception):
    """The worker ended, or spoke what is no message."""


class WorkerLate(Exception):
    """The worker did not answer in time."""


class WorkerProcess:
    """One process and the socket to it."""

    def __init__(self) -> None:
        self.scorers: list[Message] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and _exit_code(self._process) is None

    async def open(self, config: Message, start_timeout: float) -> None:
        """Start the process and let it load the rewards that `config` names. Raises PluginError."""
        ours, theirs = socket.socketpair()
        try:
            # The worker dies with the thread that started it, so this must stay on the loop's own thread.
            self._process = subprocess.Popen(  # noqa: ASYNC220, S603
                [sys.executable, "-P", "-m", "atropos_cli.rollout.scoreworker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("ATROPOS_DEBUG") else subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 20)
        await self.send(config)
        try:
            answer = await self.receive(start_timeout)
        except (WorkerGone, WorkerLate) as error:
            why = "did not start in time" if isinstance(error, WorkerLate) else str(error) or self._how_it_ended()
            raise PluginError(f"the process for rewards {why}", hint="ATROPOS_DEBUG=1 shows what it printed") from error
        if "error" in answer:
            raise PluginError(answer["error"]["message"], hint=answer["error"]["hint"])
        self.scorers = answer["ready"]

    def _how_it_ended(self) -> str:
        return _ended(self._process) if self._process is not None else "did not start"

    async def send(self, message: Message) -> None:
        assert self._writer is not None
        data = json.dumps(message, separators=(",", ":"), default=str).encode("utf-8", "replace")
        self._writer.write(_HEADER.pack(len(data)) + data)
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise WorkerGone("") from error

    async def receive(self, timeout: float) -> Message:
        """The next message. A process that is gone while a child of it holds the socket open is noticed too."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        reading = asyncio.ensure_future(self._frame())
        try:
            while True:
                left = end - loop.time()
                done, _ = await asyncio.wait({reading}, timeout=min(_POLL, max(left, 0.0)))
                if done:
                    return reading.result()
                if not self.alive:
                    raise WorkerGone("")
                if left <= 0:
                    raise WorkerLate
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, WorkerGone):
                await reading

    async def _frame(self) -> Message:
        assert self._reader is not None
        try:
            length = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))[0]
            if length > _LONGEST:
                raise WorkerGone("something else was written to its answers")
            message = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise WorkerGone("") from error
        except ValueError as error:
            raise WorkerGone("something else was written to its answers") from error
        if not isinstance(message, dict):
            raise WorkerGone("something else was written to its answers")
        return message

    async def kill(self, patience: float = 0.0) -> str:
        """Kill the process and its group, and reap it; returns how it had ended by itself, if it had.

        patience: seconds for a process that is just ending to tell how.
        """
        if self._writer is not None:
            self._writer.close()
        process, self._process = self._process, None
        if process is None:
            return ""
        await _wait(process, patience)
        ended = _ended(process)
        # Not reaped before this: the number cannot belong to another group yet.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        await asyncio.to_thread(process.wait)
        return ended

    async def close(self) -> None:
        """Let the process end; kill it when it does not."""
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            await _wait(self._process, 1.0)
        await self.kill()


async def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Give a process some time to end."""
    for _ in range(round(seconds / 0.005)):
        if _exit_code(process) is not None:
            return
        await asyncio.sleep(0.005)


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code (negative: signal) of a process that ended, without reaping it; None while it runs."""
    if process.returncode is not None:
        return process.returncode
    try:
        found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return process.poll()
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _ended(process: subprocess.Popen[bytes]) -> str:
    """How the process ended, in words."""
    code = _exit_code(process)
    if code is None:
        return "its process went silent"
    if code < 0:
        names = {int(number): number.name for number in signal.Signals}
        return f"its process was killed by {names.get(-code, f'signal {-code}')}"
    return f"its process ended with exit code {code}"
