"""Sessions of a server: a websocket for each, no more at once than the server has, and pings while the model thinks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from atropos_cli.sdk import AtroposError, ConfigError, clean_text
from atropos_cli.sdk.backends import proxy_for
from atropos_cli.sdk.foreign import Data
from atropos_openenv.actions import check_schema

if TYPE_CHECKING:
    import aiohttp

_FULL = "CAPACITY_REACHED"
_REFUSED = frozenset({"VALIDATION_ERROR", "INVALID_JSON"})
_MOST_BYTES, _MOST_SCHEMA = 100 << 20, 16 << 20
_PING_S = 20.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_CLOSE_S = 2.0
_LONGEST_TEXT = 500
_UNAVAILABLE = 502


class OpenEnvError(AtroposError):
    """The server failed at a request.

    refused: was the action at fault, which the model may correct? full: has it no more sessions? gone: is it not there?
    """

    def __init__(self, message: str, *, refused: bool = False, full: bool = False, gone: bool = False) -> None:
        super().__init__(clean_text(message)[:_LONGEST_TEXT])
        self.refused = refused
        self.full = full
        self.gone = gone


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
        said = await self._request(kind, data, "observation")
        if not isinstance(said.get("observation"), dict):
            raise OpenEnvError(f"the server answered a {kind} without an observation: {json.dumps(said)}")
        return said

    async def tools(self) -> list[Any]:
        """The tools that the server lists, over MCP: servers before 0.2.2 list them in no other way."""
        said = await self._request("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}, "mcp")
        try:
            found: Any = said["result"]["tools"]
        except (KeyError, TypeError) as error:
            raise OpenEnvError(f"the server lists no tools: {json.dumps(said)}") from error
        if not isinstance(found, list):
            raise OpenEnvError(f"the server's tools are not a list: {json.dumps(found)}")
        return found

    async def _request(self, kind: str, data: Data, wanted: str) -> Data:
        if not self._answers.empty() and (early := self._answers.get_nowait()) is not None:
            # Taken for the answer to this request, it would shift all answers, and rewards, that follow.
            raise OpenEnvError(f"the server sent a message that answers nothing: {early!r}")
        # A server that ends the session says why first, such as that it has no more of them: so its answer is awaited.
        with contextlib.suppress(ConnectionError):
            await self._socket.send_str(json.dumps({"type": kind, "data": data}))
        try:
            answer = await asyncio.wait_for(self._answers.get(), self._timeout_s)
        except TimeoutError:
            raise OpenEnvError(f"the server did not answer a {kind} within {self._timeout_s:g} s") from None
        return _checked(answer, kind, wanted)

    async def close(self) -> None:
        """End the session: when this returns, the server has it no more, unless it hangs."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await self._socket.send_str('{"type": "close"}')
                await asyncio.wait([self._reading])
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._socket.close(), _CLOSE_S)
        self._reading.cancel()
        self._over()

    async def _read(self) -> None:
        async for message in self._socket:
            self._answers.put_nowait(message.data)
        self._answers.put_nowait(None)


def reward_of(said: Data) -> float | None:
    """The reward of a step or a reset; None: it has none. Raises OpenEnvError where it is not a finite number.

    To leave it out would make the return that of another episode.
    """
    value = said.get("reward")
    if value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise OpenEnvError(f"the server gave a reward that is not a finite number: {json.dumps(value)}")
    return number


def done_of(said: Data) -> bool:
    """Is the episode over? Raises OpenEnvError where it is neither true nor false."""
    value = said.get("done", False)
    if value is None or value in (0, 1):  # true and false as well
        return bool(value)
    raise OpenEnvError(f"the server's 'done' is neither true nor false: {json.dumps(value)}")


def _checked(text: Any, kind: str, wanted: str) -> Data:
    """The data of an answer of the wanted type. Raises OpenEnvError for all else."""
    if text is None:
        raise OpenEnvError(f"the server closed the connection during a {kind}", gone=True)
    try:
        answer = json.loads(text)
        data = answer["data"]
        if answer["type"] == "error":
            code, said = data.get("code"), data.get("message")
            details = f": {json.dumps(data['errors'], default=str)}" if data.get("errors") else ""
            raise OpenEnvError(f"{code}: {said}{details}", refused=code in _REFUSED, full=code == _FULL)
        if answer["type"] != wanted or not isinstance(data, dict):
            raise OpenEnvError(f"the server answered a {kind} with: {text}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OpenEnvError(f"the server's answer to a {kind} cannot be read: {text!r}") from error
    found: Data = data
    return found


class Server:
    """A server's address and limits, and its sessions.

    A server that has no more of them says so. Then no more are open at once than there were; others may hold some
    that they give back, so from time to time one of those that wait asks all the same.
    """

    def __init__(self, url: str, *, timeout_s: float, capacity_s: float, restart_s: float) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._capacity_s = capacity_s
        self._http: aiohttp.ClientSession | None = None
        self._restart_s = restart_s
        self._opened = 0
        self._most: int | None = None
        """How many sessions of ours were open when the server had no more. None: it always had one."""
        self._probed = False
        self._wait = _FIRST_WAIT_S
        self._gone_since: float | None = None
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
                schema = _schema(await _limited(answer.content))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            await self.close()
            why = clean_text(str(error) or type(error).__name__)[:_LONGEST_TEXT]
            raise ConfigError(
                f"no OpenEnv server at {self.url}: {why}", hint="start it, then atropos gen openenv:http://HOST:PORT"
            ) from error
        return schema

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def session(self, reset: Data) -> tuple[Session, Data]:
        """A session that has been reset, and its first observation; waits for one, and for a server that restarts."""
        deadline = time.monotonic() + self._capacity_s
        wait = _FIRST_WAIT_S
        while True:
            probes = await self._place(deadline)
            try:
                made = await self._begun(reset)
            except OpenEnvError as error:
                if error.full and time.monotonic() < deadline:
                    self.waits += 1
                    self._most = self._opened
                    self._wait = min(2 * self._wait, _LONGEST_WAIT_S)
                    continue
                if not error.gone or not self._may_return():
                    raise
            else:
                self._gone_since = None
                if self._most is not None and self._opened > self._most:
                    self._most = self._opened
                self._wait = _FIRST_WAIT_S
                return made
            finally:
                if probes:
                    self._probed = False
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)

    async def _begun(self, reset: Data) -> tuple[Session, Data]:
        """One try. Raises OpenEnvError; then the place is free again."""
        try:
            session = await self._connect()
        except BaseException:
            self._ended()
            raise
        try:
            return session, await session.ask("reset", reset)
        except BaseException:
            await session.close()
            raise

    async def _place(self, deadline: float) -> bool:
        """Wait while as many sessions are open as the server has. True: this one asks whether it has more by now."""
        async with self._changed:
            while self._most is not None and self._opened >= self._most:
                try:
                    async with asyncio.timeout(self._wait):
                        await self._changed.wait()
                except TimeoutError:
                    if not self._probed or time.monotonic() > deadline:
                        self._opened += 1
                        self._probed = True
                        return True
            self._opened += 1
            return False

    def _may_return(self) -> bool:
        """Is the server gone for so short a time that it may be restarting?"""
        now = time.monotonic()
        if self._gone_since is None:
            self._gone_since = now
        return now - self._gone_since < self._restart_s

    async def _connect(self) -> Session:
        import aiohttp

        assert self._http is not None
        parts = urlsplit(self.url)
        address = urlunsplit(parts._replace(path=f"{parts.path}/ws"))
        try:
            async with asyncio.timeout(self._timeout_s):
                socket = await self._http.ws_connect(
                    address, proxy=proxy_for(self.url), heartbeat=_PING_S, max_msg_size=_MOST_BYTES
                )
        except TimeoutError as error:
            raise OpenEnvError(f"{self.url} did not answer within {self._timeout_s:g} s") from error
        except aiohttp.ClientError as error:
            status = getattr(error, "status", None)  # of an answer that is no websocket; one of a proxy is 502 to 504
            why = f"cannot connect to {self.url}: {str(error) or type(error).__name__}"
            raise OpenEnvError(why, gone=status is None or status >= _UNAVAILABLE) from error
        return Session(socket, self._timeout_s, self._ended)

    def _ended(self) -> None:
        self._opened -= 1
        task = asyncio.create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify()


async def _limited(stream: aiohttp.StreamReader) -> bytes:
    """All of an answer. Raises ValueError for one that is too large."""
    data = bytearray()
    async for part in stream.iter_chunked(1 << 16):
        data += part
        if len(data) > _MOST_SCHEMA:
            raise ValueError(f"its /schema has more than {_MOST_SCHEMA >> 20} MB")
    return bytes(data)


def _schema(text: bytes) -> Data:
    """What /schema says, whose "action" is a schema. Raises ValueError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its /schema is not JSON: {error}") from error
    try:
        check_schema(found.get("action") if isinstance(found, dict) else None)
    except ValueError as error:
        raise ValueError(f"its /schema cannot be used: {error}") from error
    return dict(found)
