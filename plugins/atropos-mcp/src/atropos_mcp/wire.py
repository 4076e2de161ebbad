"""The one place that knows versions of the package mcp: 1.x and 2.x differ in names, but not on the wire."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from atropos_cli.sdk import JsonDict

GUARD = Path(__file__).with_name("guard.py")
_MOST_PAGES = 100
_MOST_TOOLS = 1000
_CLOSED, _CLOSED_TEXT = -32000, "Connection closed"
"""What the package answers itself when the connection has ended. Servers use the number for errors of their own."""
_LOST = ("SSE stream ended", "Server returned an error response", "Session terminated")
"""How the package says, as if the server had answered so, that HTTP failed."""
_MOST_BYTES, _MOST_STREAMED = 8 << 20, 256 << 20


class ServerFault(Exception):
    """A server's answer that is an error, or cannot be used. The text says what."""


@contextlib.asynccontextmanager
async def stdio_session(command: Sequence[str], env: dict[str, str], folder: Path) -> AsyncIterator[Any]:
    """A session with a process of our own. Its standard error ends up in folder/stderr."""
    from mcp import StdioServerParameters, stdio_client

    words = ["-I", "-S", str(GUARD), *command]
    home = folder / "home"
    home.mkdir()
    # The package merges HOME, USER and more of ours below these, so each is given.
    own = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "LOGNAME": "user",
        "USER": "user",
        "SHELL": "/bin/sh",
        "TERM": "dumb",
    }
    parameters = StdioServerParameters(command=sys.executable, args=words, env={**own, **env}, cwd=folder)
    with (folder / "stderr").open("w", encoding="utf-8") as log:
        async with stdio_client(parameters, errlog=log) as (read, write), _initialized(read, write) as session:
            yield session


@contextlib.asynccontextmanager
async def http_session(url: str, key: str | None) -> AsyncIterator[Any]:
    """A session with a server of somebody else's: streamable HTTP, or SSE where the path ends in /sse."""
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    if url.partition("?")[0].rstrip("/").endswith("/sse"):
        opened = sse_client(url, headers=headers, httpx_client_factory=_client)
        async with opened as (read, write), _initialized(read, write) as session:
            yield session
        return
    async with (
        _client(headers) as client,
        streamable_http_client(url, http_client=client) as (read, write, *_),
        _initialized(read, write) as session,
    ):
        yield session


def _client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
    """The package's HTTP client, which stops reading answers that do not end."""
    from mcp.client import streamable_http

    client = vars(streamable_http)["create_mcp_http_client"](headers=headers, timeout=timeout, auth=auth)
    client.event_hooks = {"response": [_bound]}
    return client


async def _bound(response: Any) -> None:
    """Limit the size of a response; a stream of events may be longer. Of httpx in 1.x and of httpx2 in 2.x."""
    stream = response.stream
    base: Any = next(one for one in type(stream).__mro__ if one.__name__ == "AsyncByteStream")
    most = _MOST_STREAMED if "event-stream" in response.headers.get("content-type", "") else _MOST_BYTES

    class Bounded(base):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = most
            async for data in stream:
                left -= len(data)
                if left < 0:
                    raise ServerFault(f"it sent more than {most >> 20} MB")
                yield data

        async def aclose(self) -> None:
            await stream.aclose()

    response.stream = Bounded()


@contextlib.asynccontextmanager
async def _initialized(read: Any, write: Any) -> AsyncIterator[Any]:
    from mcp import ClientSession

    for name in ("mcp", "client"):  # what matters is raised; the rest are a server's odd lines
        logging.getLogger(name).setLevel(logging.CRITICAL)
    async with ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def listed(session: Any) -> list[JsonDict]:
    """The tools of a server, as it describes them: {"name", "description", "inputSchema"}."""
    from mcp.types import PaginatedRequestParams

    found: list[JsonDict] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page: Any = _plain(await session.list_tools(params=PaginatedRequestParams(cursor=cursor)))
        found += page.get("tools") or []
        cursor = page.get("nextCursor")
        if cursor is None or len(found) > _MOST_TOOLS:
            break
    else:
        raise ServerFault(f"its list of tools has more than {_MOST_PAGES} pages")
    if len(found) > _MOST_TOOLS:
        raise ServerFault(f"it lists more than {_MOST_TOOLS} tools")
    return found


async def called(session: Any, name: str, arguments: JsonDict, seconds: float) -> JsonDict:
    """The result of a call: {"content": [...], "structuredContent", "isError"}."""
    from mcp import types

    limit: Any = seconds if hasattr(types, "jsonrpc_message_adapter") else timedelta(seconds=seconds)
    return _plain(await session.call_tool(name, arguments, read_timeout_seconds=limit))


def _plain(model: Any) -> JsonDict:
    """A message as it is on the wire, where both versions agree."""
    data: JsonDict = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return data


def is_answer(error: BaseException) -> bool:
    """Is it an error that the server sent as its answer, such as wrong arguments?"""
    return type(error).__name__ in ("McpError", "MCPError") and not is_end(error)


def is_end(error: BaseException) -> bool:
    """Does it say that the connection has ended?"""
    if type(error).__name__ not in ("McpError", "MCPError"):
        return False
    closed = getattr(getattr(error, "error", None), "code", None) == _CLOSED and str(error) == _CLOSED_TEXT
    return closed or str(error).startswith(_LOST)


def clean_env(names: Sequence[str]) -> dict[str, str]:
    """What a server's process sees of our variables."""
    return {name: os.environ[name] for name in ("PATH", "LANG", *names) if name in os.environ}


def temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """The folder of one server."""
    return tempfile.TemporaryDirectory(prefix="atropos-mcp-", ignore_cleanup_errors=True)
