"""The source of tools `mcp`: --tools mcp:COMMAND or --tools mcp:URL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.tools import ToolResult, ToolSession, ToolSource
from atropos_mcp.config import ACCESS, McpConfig, command_of
from atropos_mcp.connection import Connection, Opened, ServerError, opener
from atropos_mcp.translate import functions, text_of
from atropos_mcp.wire import ServerFault


class McpTools(ToolSource):
    """The tools of an MCP server: a command that is started here (stdio), or the URL of a server.

    A path that ends in /sse is asked by SSE, any other by streamable HTTP. Each episode has a server (for a URL: a
    session) of its own, from its first call to its end; with --tool.mcp.shared all have one.
    """

    name = "mcp"
    Config: ClassVar[type[BaseModel]] = McpConfig
    access = ACCESS
    config: McpConfig

    def __init__(self, target: str, config: McpConfig) -> None:
        super().__init__(target.strip(), config)
        command_of(self.target)
        self._names: dict[str, str] = {}
        self._opened: Opened | None = None
        self._slots = asyncio.Semaphore(config.workers)
        self._reopening = asyncio.Lock()
        self._shared: Connection | None = None
        self._sessions: set[McpSession] = set()

    async def open(self, *, workers: int) -> Sequence[JsonDict]:
        """See ToolSource. Starts a server to see its tools. Raises ConfigError."""
        self._opened = opener(self.target, self.config)
        try:
            connection = await self.connect()
            try:
                found = functions(await connection.tools())
            except BaseException:
                await connection.close()
                raise
        except (ServerError, ServerFault) as error:
            said = str(error)
            text = said if said.startswith(self.label) else f"{self.label}: {said}"
            raise ConfigError(text, hint="run the command, or open the URL, by hand and look at it") from error
        if self.config.shared:
            self._shared = connection
        else:
            await connection.close()
        self._names = {name: own for name, (own, _) in found.items()}
        return [schema for _, schema in found.values()]

    @property
    def label(self) -> str:
        """For messages."""
        return f"MCP server {self.target!r}"

    def session(self) -> ToolSession:
        """See ToolSource."""
        session = McpSession(self)
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        """See ToolSource."""
        sessions, self._sessions = list(self._sessions), set()
        shared, self._shared = self._shared, None
        closing = [session.close() for session in sessions] + ([shared.close()] if shared is not None else [])
        await asyncio.gather(*closing, return_exceptions=True)

    async def connect(self) -> Connection:
        """A new connection. Raises ServerError."""
        assert self._opened is not None, "open() comes first"
        connection = Connection(self.label, self._opened, self.config.start_timeout)
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def ask(self, session: McpSession, name: str, arguments: JsonDict) -> ToolResult:
        """A call, when its turn comes. Raises ServerError and TimeoutError."""
        async with self._slots:
            connection = await self._connection_of(session)
            try:
                result = await connection.call(self._names[name], arguments, self.config.timeout)
            except ServerFault as error:
                return ToolResult(str(error), error=True)
        return ToolResult(text_of(result), error=bool(result.get("isError")))

    async def _connection_of(self, session: McpSession) -> Connection:
        if not self.config.shared:
            if session.connection is None:
                session.connection = await self.connect()
            return session.connection
        async with self._reopening:
            if self._shared is None or not self._shared.alive:
                self._shared = None
                self._shared = await self.connect()
            return self._shared

    def forget(self, session: McpSession) -> None:
        """It is closed."""
        self._sessions.discard(session)


class McpSession(ToolSession):
    """The calls of one episode."""

    def __init__(self, source: McpTools) -> None:
        self._source = source
        self.connection: Connection | None = None

    async def call(self, name: str, arguments: JsonDict) -> ToolResult:
        """See ToolSession."""
        return await self._source.ask(self, name, arguments)

    async def close(self) -> None:
        """See ToolSession."""
        self._source.forget(self)
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(ServerError):
                await connection.close()
