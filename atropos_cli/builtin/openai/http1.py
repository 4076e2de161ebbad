"""One HTTP/1.1 connection: a request out, a whole answer in. asyncio's transports do the rest.

Understood are stated lengths, chunked bodies, bodies that end with the connection, interim answers and gzip
(which is not asked for). Not understood, because nobody sends it to us: upgrades, trailers' contents.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from dataclasses import dataclass

from atropos_cli.sdk.backends import TransientBackendError

_MAX_HEADER = 65536


@dataclass(slots=True)
class HttpResponse:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Closed(Exception):
    """The connection ended before the first byte of an answer."""


class Connection(asyncio.Protocol):
    """One TCP connection and at most one request on it.

    reusable is True after a whole answer that lets the connection stay open.
    """

    __slots__ = ("_buffer", "_head", "_loop", "_transport", "_waiter", "closed", "reusable")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[HttpResponse] | None = None
        self._buffer = bytearray()
        self._head: _Head | None = None
        self.closed = False
        self.reusable = False

    async def exchange(self, data: bytes, timeout: float) -> HttpResponse:
        """Raises Closed, TimeoutError or TransientBackendError."""
        assert self._transport is not None
        self.reusable = False
        waiter: asyncio.Future[HttpResponse] = self._loop.create_future()
        self._waiter = waiter
        self._transport.write(data)
        timer = self._loop.call_later(timeout, _expire, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._waiter = None

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        if sock is not None:
            _notice_dead_hosts(sock)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.close()  # bytes that nobody asked for: this connection cannot be trusted
            return
        self._buffer += data
        self._parse(ended=False)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, exc: Exception | None) -> None:
        self.closed = True
        if self._waiter is None or self._waiter.done():
            return
        if self._head is None and not self._buffer:
            self._waiter.set_exception(Closed())
            return
        if exc is None:
            self._parse(ended=True)
        if not self._waiter.done():
            self._fail("closed the connection in the middle of an answer")

    def _fail(self, message: str, hint: str | None = None) -> None:
        assert self._waiter is not None
        self._waiter.set_exception(TransientBackendError(message, hint=hint))

    def _parse(self, *, ended: bool) -> None:
        """Complete the waiter when the buffer holds a whole answer (or can never hold one)."""
        assert self._waiter is not None
        try:
            if self._head is None and not self._read_head():
                return
            assert self._head is not None
            head = self._head
            body, used = _body(self._buffer, head, ended=ended)
            if body is None:
                return
            if (encoding := head.headers.get("content-encoding")) and encoding != "identity":
                body = zlib.decompress(body, 47)  # 47: gzip or zlib, told apart by their first bytes
        except (ValueError, zlib.error):
            self._fail("sent a malformed HTTP answer")
            return
        self.reusable = head.keep and not self.closed and used == len(self._buffer)
        self._buffer.clear()
        self._head = None
        self._waiter.set_result(HttpResponse(head.status, head.headers, body))

    def _read_head(self) -> bool:
        """Take status and headers out of the buffer, when they are there. Raises ValueError."""
        buffer = self._buffer
        while True:
            end = buffer.find(b"\r\n\r\n")
            if not buffer.startswith(b"HTTP/1."[: len(buffer)]) or (end < 0 and len(buffer) > _MAX_HEADER):
                self._fail("does not answer in HTTP", "is this the right port, and http:// rather than https://?")
                return False
            if end < 0:
                return False
            head = _parse_head(bytes(buffer[:end]))
            del buffer[: end + 4]
            if head.status >= 200:  # below: an interim answer, the real one follows
                self._head = head
                return True


@dataclass(slots=True)
class _Head:
    """Status and headers of an answer; keep: the connection stays open behind it."""

    status: int
    headers: dict[str, str]
    keep: bool


def _parse_head(head: bytes) -> _Head:
    """Raises ValueError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status = first.split(" ", 2)[:2]
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(line)
        headers[name.lower()] = value.strip()
    connection = headers.get("connection", "").lower()
    keep = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
    return _Head(int(status), headers, keep)


def _body(buffer: bytearray, head: _Head, *, ended: bool) -> tuple[bytes | None, int]:
    """The body and the buffer position behind it; None while more must come. Raises ValueError."""
    if head.status in (204, 304):
        return b"", 0
    if "chunked" in head.headers.get("transfer-encoding", "").lower():
        return _chunked(buffer)
    if (length := head.headers.get("content-length")) is not None:
        end = int(length)
        return (bytes(buffer[:end]), end) if len(buffer) >= end else (None, 0)
    return (bytes(buffer), len(buffer)) if ended else (None, 0)


def _chunked(buffer: bytearray) -> tuple[bytes | None, int]:
    if not buffer.endswith(b"\r\n\r\n"):
        return None, 0  # the last chunk ends so; looking for it only then keeps long answers cheap
    parts: list[bytes] = []
    position = 0
    while True:
        line = buffer.find(b"\r\n", position)
        if line < 0:
            return None, 0
        size = int(bytes(buffer[position:line]).partition(b";")[0], 16)
        begin = line + 2
        if size == 0:
            # Trailers, if any, end with an empty line.
            end = begin if buffer.startswith(b"\r\n", begin) else buffer.find(b"\r\n\r\n", begin) + 2
            return b"".join(parts), end + 2
        if len(buffer) < begin + size + 2:
            return None, 0
        parts.append(bytes(buffer[begin : begin + size]))
        position = begin + size + 2


def _notice_dead_hosts(sock: socket.socket) -> None:
    """Have the kernel ask a silent peer after a minute: a host that lost power is noticed before the timeout."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):  # Linux
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _expire(waiter: asyncio.Future[HttpResponse]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
