"""The other side of a foreign process: requests run at once in one event loop, and may ask the engine meanwhile.

Run by `isolation.child` under the interpreter of the environment; it imports nothing of the package. The first message
is {"id": 0, "protocol": 1, "python": ..., "versions": {...}, "error": ... or null}, after the dialect's file has been
imported. Then, for each request {"id": N, "do": ...}:

    -> {"id": N, "ask": K, ...}        a question to the engine, answered by {"id": N, "answer": K, "value" or "error"}
    -> {"id": N, "note": {...}}        something to know, such as a warning
    -> {"id": N, "done": value}        or {"id": N, "failed": {"type", "message", "trace", "hint" if it has one}}
    <- {"id": N, "cancel": true}       ends the request

The dialect's file defines `async def start(settings)` and `async def answer(call, request)`, and may define `async def
stop()`, which has some seconds to end its own processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import Any

PROTOCOL = 1
_CHUNK = 1 << 18
_TRACE = 20
_STOP_S = 3.0


class EngineError(RuntimeError):
    """The engine could not answer a question, such as a request to the model."""


class Call:
    """One request, while it runs."""

    def __init__(self, send: Callable[[dict[str, Any]], None], number: int) -> None:
        self._send = send
        self.number = number
        self.cancelled = False
        """By the engine, which waits for no answer then."""
        self._asked: dict[int, asyncio.Future[Any]] = {}

    async def ask(self, **question: Any) -> Any:
        """The engine's answer. Raises EngineError."""
        key = len(self._asked)
        waiting = self._asked[key] = asyncio.get_running_loop().create_future()
        self._send({"id": self.number, "ask": key, **question})
        return await waiting

    def note(self, **said: Any) -> None:
        """Let the engine know something."""
        self._send({"id": self.number, "note": said})

    def answered(self, message: dict[str, Any]) -> None:
        """Take up an answer of the engine."""
        waiting = self._asked.get(message["answer"])
        if waiting is None or waiting.done():
            return
        if "error" in message:
            waiting.set_exception(EngineError(message["error"]))
        else:
            waiting.set_result(message.get("value"))


class Server:
    """All requests of this process."""

    def __init__(self, connection: Any, framing: Any, dialect: Any) -> None:
        self._connection = connection
        self._framing = framing
        self._dialect = dialect
        self._buffer = bytearray()
        self._calls: dict[int, Call] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._closed = asyncio.Event()
        self._pid = os.getpid()

    async def run(self, hello: dict[str, Any]) -> None:
        """Say who we are, then answer until the other side is gone."""
        asyncio.get_running_loop().add_reader(self._connection.fileno(), self._read)
        self.send(hello)
        await self._closed.wait()
        if (stop := getattr(self._dialect, "stop", None)) is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(stop(), _STOP_S)
        os._exit(0)

    def send(self, message: dict[str, Any]) -> None:
        """Blocks while the other side does not read: nothing piles up here."""
        self._write(self._framing.packed(plain(message)))

    def _write(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError:
            self._closed.set()

    def _read(self) -> None:
        data = self._connection.recv(_CHUNK)
        if not data:
            self._closed.set()
            return
        self._buffer += data
        for message in self._framing.take_messages(self._buffer):
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        number = message["id"]
        if message.get("cancel"):
            if number in self._tasks:
                self._calls[number].cancelled = True
                self._tasks[number].cancel()
        elif "answer" in message:
            if number in self._calls:
                self._calls[number].answered(message)
        else:
            call = self._calls[number] = Call(self.send, number)
            task = self._tasks[number] = asyncio.ensure_future(self._run(call, message))
            task.add_done_callback(lambda _: (self._tasks.pop(number, None), self._calls.pop(number, None)))

    async def _run(self, call: Call, request: dict[str, Any]) -> None:
        try:
            value = await self._dialect.answer(call, request)
            # A value that cannot be sent is a failure, too: else the other side would wait until its time is over.
            data = self._framing.packed(plain({"id": call.number, "done": value}))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the answer to this request
            self._end_copy(error)
            if not call.cancelled:  # else no one waits; a task of the environment's own may have been cancelled, too
                self.send({"id": call.number, "failed": described(error)})
        else:
            self._end_copy(None)
            self._write(data)

    def _end_copy(self, error: BaseException | None) -> None:
        """End a process that the environment forked where it would have ended by itself: its parent answers."""
        if os.getpid() != self._pid:
            os._exit(exit_code(error))


def described(error: BaseException) -> dict[str, str]:
    """An exception as data."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__)[-_TRACE:])
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - it is the environment's class
        message = "an exception that says nothing"
    said = {"type": type(error).__name__, "message": message, "trace": trace}
    return {**said, "hint": str(error.hint)} if hasattr(error, "hint") else said


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers of numpy, models of pydantic, sets and tuples too; NaN is kept as text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if value - value == 0 else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        return list(value) if kinds <= {int} or kinds <= {str} else [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return [plain(item) for item in value]
    for name in ("model_dump", "tolist", "item"):
        if callable(method := getattr(value, name, None)):
            return plain(method())
    return str(value)


def versions(names: list[str]) -> dict[str, str]:
    """The versions of distributions, of those that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def main(channel: Any, dialect_file: str, settings: str) -> None:
    """Import the dialect, start it, and answer."""
    given = json.loads(settings)
    framing = sys.modules["__main__"]
    connection = channel._connection
    hello: dict[str, Any] = {"id": 0, "protocol": PROTOCOL, "python": platform.python_version(), "error": None}
    hello["versions"] = versions(given.get("packages", []))
    # What libraries print must not look like data of the program that started us.
    sys.stdout = sys.stderr

    async def serve() -> None:
        dialect: Any = None
        try:
            dialect = framing.load_module("dialect", dialect_file)
            hello["about"] = plain(await dialect.start(given))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the other side reports it
            hello["error"] = described(error)
        await Server(connection, framing, dialect).run(hello)

    # Not asyncio.run(): it would cancel all requests where one calls sys.exit() in a task of its own, and each would
    # answer that it failed. So the process ends with all of them unanswered, and the one that did it is found.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(serve())
    except BaseException as error:  # noqa: BLE001 - the last words of the process
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(exit_code(error))


def exit_code(error: BaseException | None) -> int:
    """What Python would exit with."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return int(error is not None)
