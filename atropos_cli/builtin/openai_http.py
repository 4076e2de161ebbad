"""HTTP for the OpenAI-compatible backend: one request, one whole answer, over kept connections.

Plain http:// goes through the small HTTP/1.1 client below, because it takes a tenth of the CPU time of a
general client (tests/benchmarks) and the one process that rolls out must feed many GPUs. https:// and
proxies go through httpx. Both raise the same errors:

    ServerUnavailable       nobody listens, the name is unknown, no connection in time
    TransientBackendError   closed or reset before the answer was whole, no answer in time, not HTTP
    FatalBackendError       a certificate that cannot be trusted
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from atropos_cli.sdk import BackendError, ConfigError, FatalBackendError, ServerUnavailable, TransientBackendError

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT = 10.0
_MAX_HEADER = 65536
_LOOPBACK = ("127.", "localhost", "::1")


@dataclass(slots=True)
class HttpResponse:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Closed(Exception):
    """The connection ended before the first byte of an answer."""


class HttpClient:
    """Requests to one origin (scheme, host, port), with its connections kept open between them.

    stale_retries: how often a kept connection turned out to be closed and the request went out anew.
    """

    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(base_url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.secure else 80)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.address = f"{host}:{self.port}"
        self.origin = f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
        self.stale_retries = 0
        self._headers = headers
        lines = {"Host": self.origin.partition("://")[2], "Accept-Encoding": "identity", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1")
        self._idle: list[_Connection] = []
        self._general: httpx.AsyncClient | None = None
        self._use_general = self.secure or _proxied(self.host)

    async def request(self, method: str, path: str, body: bytes | None, timeout: float) -> HttpResponse:
        """Send one request and read its answer. `path` begins with a slash; timeout counts from sending."""
        if self._use_general:
            return await self._request_httpx(method, path, body, timeout)
        head = b"%s %s HTTP/1.1\r\n%s" % (method.encode(), path.encode(), self._head)
        if body is None:
            data = head + b"\r\n"
        else:
            data = b"%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body)
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                continue
            try:
                return await self._exchange(connection, data, timeout)
            except _Closed:
                # The server closed a kept connection as the request went out: it has not seen it.
                self.stale_retries += 1
                break
        try:
            return await self._exchange(await self._connect(min(timeout, CONNECT_TIMEOUT)), data, timeout)
        except _Closed as error:
            raise TransientBackendError(f"{self.address} closed the connection without an answer") from error

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()
        if self._general is not None:
            await self._general.aclose()
            self._general = None

    async def _exchange(self, connection: _Connection, data: bytes, timeout: float) -> HttpResponse:
        try:
            response = await connection.exchange(data, timeout)
        except TimeoutError as error:
            raise _no_answer(self.address, timeout) from error
        except BackendError as error:
            error.message = f"{self.address} {error.message}"
            error.args = (error.message,)
            raise
        finally:
            if connection.reusable:
                self._idle.append(connection)
            else:
                connection.close()
        return response

    async def _connect(self, timeout: float) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop), self.host, self.port, happy_eyeballs_delay=0.25
                )
        except TimeoutError as error:
            raise _unavailable(self.address, f"no connection to {self.address} within {timeout:g} s") from error
        except OSError as error:
            raise _connect_error(self.address, self.host, error) from error
        return connection

    async def _request_httpx(self, method: str, path: str, body: bytes | None, timeout: float) -> HttpResponse:
        import httpx

        connect = min(timeout, CONNECT_TIMEOUT)
        if self._general is None:
            self._general = self._make_general()
        try:
            response = await self._general.request(
                method,
                self.origin + path,
                content=body,
                headers={"Content-Type": "application/json"} if body is not None else None,
                timeout=httpx.Timeout(timeout, connect=connect),
            )
        except httpx.ConnectTimeout as error:
            raise _unavailable(self.address, f"no connection to {self.address} within {connect:g} s") from error
        except httpx.TimeoutException as error:
            raise _no_answer(self.address, timeout) from error
        except (httpx.ConnectError, httpx.ProxyError) as error:
            cause = _root_cause(error)
            raise _connect_error(self.address, self.host, cause) from error
        except httpx.TransportError as error:
            raise TransientBackendError(f"{self.address} broke off: {type(error).__name__}: {error}") from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return HttpResponse(response.status_code, headers, response.content)

    def _make_general(self) -> httpx.AsyncClient:
        import httpx

        try:
            return httpx.AsyncClient(
                headers={"Accept-Encoding": "identity", **self._headers},
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            )
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"the environment's proxy settings cannot be used: {error}",
                hint="unset ALL_PROXY HTTPS_PROXY, or pip install 'httpx[socks]' for a SOCKS proxy",
            ) from error


class _Connection(asyncio.Protocol):
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
        """Raises _Closed, TimeoutError or TransientBackendError."""
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
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

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
            self._waiter.set_exception(_Closed())
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


def _expire(waiter: asyncio.Future[HttpResponse]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


def _proxied(host: str) -> bool:
    """Does the environment name an HTTP proxy for this host? Never for this machine itself."""
    names = {name.lower() for name, value in os.environ.items() if value}
    if host.startswith(_LOOPBACK) or names.isdisjoint({"http_proxy", "all_proxy"}):
        return False
    from urllib.request import proxy_bypass

    return not proxy_bypass(host)


def _no_answer(address: str, timeout: float) -> TransientBackendError:
    return TransientBackendError(
        f"{address} gave no answer within {timeout:g} s",
        hint="raise --request-timeout if completions take longer than that",
    )


def _unavailable(address: str, message: str) -> ServerUnavailable:
    return ServerUnavailable(message, address=address, hint="start the model server, or correct --base-url")


def _root_cause(error: BaseException) -> BaseException:
    """The socket's or TLS's own error below a general client's."""
    cause = error.__cause__ or error.__context__
    return error if cause is None or isinstance(error, OSError) else _root_cause(cause)


def _connect_error(address: str, host: str, error: BaseException) -> BackendError:
    """Why no connection came about, in the user's terms."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return FatalBackendError(
            f"the certificate of {address} cannot be trusted: {error.verify_message}",
            hint="add its authority with SSL_CERT_FILE, or use http:// for a server of your own",
        )
    if isinstance(error, ssl.SSLError):
        return _unavailable(address, f"{address} does not speak TLS: {error.reason or error}")
    if isinstance(error, socket.gaierror):
        return _unavailable(address, f"cannot find the host {host!r}: {error.strerror or error}")
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.EMFILE, errno.ENFILE):
        return TransientBackendError(
            "this process has too many open files for one more connection", hint="ulimit -n 8192, or fewer --workers"
        )
    # asyncio joins the errors of several addresses in one text.
    if code == errno.ECONNREFUSED or f"Errno {errno.ECONNREFUSED}]" in str(error):
        return _unavailable(address, f"nobody listens at {address}")
    return _unavailable(address, f"cannot connect to {address}: {error}")
