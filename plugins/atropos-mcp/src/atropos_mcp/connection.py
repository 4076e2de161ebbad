"""One session with a server, in a task of its own: the package's contexts must end in the task that began them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.secrets import learn_secret, redacted
from atropos_mcp.config import McpConfig, command_of, from_here
from atropos_mcp.wire import (
    ServerFault,
    called,
    clean_env,
    http_session,
    is_answer,
    is_end,
    listed,
    stdio_session,
    temporary_folder,
)

T = TypeVar("T")

_CLOSING = 8.0
Opened = Callable[[Path], AbstractAsyncContextManager[Any]]


class ServerError(Exception):
    """A server that cannot be used: it does not start, ends, or sends other things than MCP."""


def opener(target: str, config: McpConfig) -> Opened:
    """How sessions with the target are opened. Raises ConfigError for a variable that is not set."""
    missing = [name for name in (*config.env, config.api_key_env) if name is not None and name not in os.environ]
    if missing:
        raise ConfigError(f"the variable {missing[0]} for {target} is not set", hint=f"export {missing[0]}=...")
    command = command_of(target)
    if command is not None:
        env, words = clean_env(config.env), from_here(command)
        return lambda folder: stdio_session(words, env, folder)
    key = None if config.api_key_env is None else os.environ[config.api_key_env]
    if key is not None:
        learn_secret(key)
    return lambda folder: http_session(target, key)


class Connection:
    """A session that is opened once. Its methods raise ServerError."""

    def __init__(self, label: str, opened: Opened, start_timeout: float) -> None:
        self._label = label
        self._opened = opened
        self._start_timeout = start_timeout
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._said = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Can it be called?"""
        return self._task is not None and not self._task.done()

    async def open(self) -> None:
        """Start the server, or connect."""
        self._task = asyncio.create_task(self._run())
        await asyncio.wait({self._ready, self._task}, timeout=self._start_timeout, return_when=asyncio.FIRST_COMPLETED)
        if not self._ready.done():
            late = not self._task.done()
            why = self._why() if not late else f"it did not answer within {self._start_timeout:g} s"
            await self.close()
            raise ServerError(f"{self._label}: {why}")

    async def tools(self) -> list[JsonDict]:
        """Its tools."""
        try:
            return await self._asked(listed(self._ready.result()), self._start_timeout)
        except ServerFault as error:
            raise ServerError(f"{self._label}: {error}") from error
        except TimeoutError:
            raise ServerError(f"{self._label}: it did not list its tools in {self._start_timeout:g} s") from None

    async def call(self, name: str, arguments: JsonDict, seconds: float) -> JsonDict:
        """The result of a call. Raises TimeoutError after that time, and ServerFault for an error as an answer."""
        return await self._asked(called(self._ready.result(), name, arguments, seconds + _CLOSING), seconds)

    async def close(self) -> None:
        """End the session; a server of ours is killed with all that it started."""
        self._closing.set()
        if self._task is None:
            return
        if not self._ready.done():
            self._task.cancel()
        done, _ = await asyncio.wait({self._task}, timeout=_CLOSING)
        if not done:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSING)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # was told where it matters; asyncio prints those that nobody looked at
        self._ready.cancel()

    async def _asked(self, asking: Coroutine[Any, Any, T], seconds: float) -> T:
        """The first of these: the answer, the end of the server, or the time (a TimeoutError)."""
        assert self._task is not None
        asked = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({asked, self._task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done() and not self._task.done():
                raise TimeoutError
            error = asked.exception() if asked.done() else None
            if asked.done() and error is None:
                return asked.result()
            if error is not None and is_answer(error):
                raise ServerFault(redacted(str(error)))
            self._closing.set()
            await asyncio.wait({self._task}, timeout=_CLOSING)
            raise ServerError(f"{self._label}: {self._why(error)}")
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _run(self) -> None:
        with temporary_folder() as name:
            folder = Path(name)
            try:
                async with self._opened(folder) as session:
                    self._ready.set_result(session)
                    await self._closing.wait()
            finally:
                self._said = _tail(folder / "stderr")

    def _why(self, error: BaseException | None = None) -> str:
        if error is None and self._task is not None and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
        reason = "the server has ended" if error is None else _innermost(error)
        return redacted(f"{reason}; it said: {self._said}" if self._said else reason)


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if is_end(error):
        return "the server has ended" if "closed" in str(error) else str(error)
    text = " ".join(str(error).split())[:500]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _tail(file: Path) -> str:
    with contextlib.suppress(OSError):
        return " ".join(file.read_text(encoding="utf-8", errors="replace")[-500:].split())
    return ""
