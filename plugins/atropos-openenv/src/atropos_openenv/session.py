"""Sessions of a server: a websocket for each, no more at once than the server has, and pings while the model thinks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from atropos_cli.sdk import AtroposError, ConfigError, clean_text
from atropos_cli.sdk.backends import proxy_for
from atropos_cli.sdk.foreign import Data

if TYPE_CHECKING:
    import aiohttp

_FULL = "CAPACITY_REACHED"
_REFUSED = frozenset({"VALIDATION_ERROR", "INVALID_JSON"})
_MOST_BYTES = 100 << 20
_PING_S = 20.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_CLOSE_S = 2.0
_LONGEST_TEXT = 500


class OpenEnvError(AtroposError):
    """The server failed at a request. refused: was the action at fault, which the model may correct?"""

    def __init__(self, message: str, *, refused: bool = False, full: bool = False) -> None:
        super().__init__(clean_text(message)[:_LONGEST_TEXT])
        self.refused = refused
        self.full = full


class Session:
    """One websocket: reset, then steps. Messages are read all the time, so that pings are answered."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, timeout_s: float, over: Callable[[], object]) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        self._over = over
        self._answers: asyncio.Queue[Any] = asyncio.Queue()
        self._reading = asyncio.create_task(self._read())

    async def ask(self, kind: str, data: Data) -> Data:
        """The observation after a reset or a step: {"observation", "reward", "done"}. Raises OpenEnvError."""
        # A server that ends the session says why first, such as that it has no more of them: so its answer is awaited.
        with contextlib.suppress(ConnectionError):
            await self._socket.send_str(json.dumps({"type": kind, "data": data}))
        try:
            answer = await asyncio.wait_for(self._answers.get(), self._timeout_s)
        except TimeoutError:
            raise OpenEnvError(f"the server did not answer a {kind} within {self._timeout_s:g} s") from None
        return _checked(answer, kind)

    async def close(self) -> None:
        """End the session. Safe to call twice."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._socket.send_str('{"type": "close"}'), _CLOSE_S)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._socket.close(), _CLOSE_S)
        self._reading.cancel()
        self._over()

    async def _read(self) -> None:
        async for message in self._socket:
            self._answers.put_nowait(message.data)
        self._answers.put_nowait(None)


def _checked(text: Any, kind: str) -> Data:
    """An answer as an observation. Raises OpenEnvError for all else."""
    if text is None:
        raise OpenEnvError(f"the server closed the connection during a {kind}")
    try:
        answer = json.loads(text)
        data = answer["data"]
        if answer["type"] == "error":
            code, said = data.get("code"), data.get("message")
            details = f": {json.dumps(data['errors'], default=str)}" if data.get("errors") else ""
            raise OpenEnvError(f"{code}: {said}{details}", refused=code in _REFUSED, full=code == _FULL)
        if answer["type"] != "observation" or not isinstance(data.get("observation"), dict):
            raise OpenEnvError(f"the server answered a {kind} with: {text}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OpenEnvError(f"the server's answer to a {kind} cannot be read: {text!r}") from error
    found: Data = data
    return found


class Server:
    """A server's address and limits, and its sessions.

    A server that has no more of them says so; then no more are asked for than were open, until one of them ends.
    """

    def __init__(self, url: str, *, timeout_s: float, capacity_s: float) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._capacity_s = capacity_s
        self._http: aiohttp.ClientSession | None = None
        self._opened = 0
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.waits = 0
        """How often a session was refused because there were no more."""

    async def open(self) -> Data:
        """Connect; the schemas of actions and observations. Raises ConfigError where no such server answers."""
        import aiohttp

        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), trust_env=False)
        try:
            async with self._http.get(
                f"{self.url}/schema",
                proxy=proxy_for(self.url),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            ) as answer:
                answer.raise_for_status()
                schema = await answer.json()
                if not isinstance(schema.get("action"), dict):
                    raise ValueError("its /schema describes no action")
        except (aiohttp.ClientError, TimeoutError, ValueError, AttributeError) as error:
            await self.close()
            why = str(error) or type(error).__name__
            raise ConfigError(
                f"no OpenEnv server at {self.url}: {why}", hint="start it, then atropos gen openenv:http://HOST:PORT"
            ) from error
        found: Data = schema
        return found

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def session(self, reset: Data) -> tuple[Session, Data]:
        """A session that has been reset, and its first observation; waits while the server has no more of them."""
        deadline = time.monotonic() + self._capacity_s
        wait = _FIRST_WAIT_S
        while True:
            session = await self._connect()
            try:
                return session, await session.ask("reset", reset)
            except OpenEnvError as error:
                await session.close()
                if not error.full or time.monotonic() > deadline:
                    raise
            except BaseException:
                await session.close()
                raise
            self.waits += 1
            await self._one_ends(min(wait, max(0.0, deadline - time.monotonic())))
            wait = min(2 * wait, _LONGEST_WAIT_S)

    async def _connect(self) -> Session:
        import aiohttp

        assert self._http is not None
        parts = urlsplit(self.url)
        address = urlunsplit(parts._replace(path=f"{parts.path}/ws"))
        try:
            socket = await self._http.ws_connect(
                address, proxy=proxy_for(self.url), heartbeat=_PING_S, max_msg_size=_MOST_BYTES
            )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OpenEnvError(f"cannot connect to {self.url}: {error or type(error).__name__}") from error
        self._opened += 1
        return Session(socket, self._timeout_s, self._ended)

    def _ended(self) -> None:
        self._opened -= 1
        self._later(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _one_ends(self, seconds: float) -> None:
        """Wait until a session of ours ends; others may hold some too, so not for ever."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
