"""HTTP for the OpenAI-compatible backend: one request, one whole answer, over kept connections.

Plain http:// goes over our own connections (openai_http1), because a general client takes over thirty
times the CPU time (tests/benchmarks/http_bench.py), and the one process that rolls out must feed many GPUs.
https:// and proxies go through httpx. Both raise the same errors:

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
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from atropos_cli.builtin.openai.http1 import Closed, Connection, HttpResponse
from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import BackendError, FatalBackendError, ServerUnavailable, TransientBackendError

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT = 10.0
_STALE = 2.0  # seconds after which a lost connection was lost with the request, not before it
_LOOPBACK = ("127.", "localhost", "::1")


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
        self._idle: list[Connection] = []
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
            sent = time.monotonic()
            try:
                return await self._exchange(connection, data, timeout)
            except Closed as error:
                if time.monotonic() - sent > _STALE:
                    raise self._no_answer() from error
                # The server closed a kept connection just as the request went out: it has not seen it.
                self.stale_retries += 1
                break
        try:
            return await self._exchange(await self._connect(min(timeout, CONNECT_TIMEOUT)), data, timeout)
        except Closed as error:
            raise self._no_answer() from error

    def _no_answer(self) -> TransientBackendError:
        return TransientBackendError(f"{self.address} closed the connection without an answer")

    async def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()
        if self._general is not None:
            await self._general.aclose()
            self._general = None

    async def _exchange(self, connection: Connection, data: bytes, timeout: float) -> HttpResponse:
        try:
            response = await connection.exchange(data, timeout)
        except TimeoutError as error:
            raise _too_late(self.address, timeout) from error
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

    async def _connect(self, timeout: float) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop), self.host, self.port, happy_eyeballs_delay=0.25
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
            raise _too_late(self.address, timeout) from error
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


def _proxied(host: str) -> bool:
    """Does the environment name an HTTP proxy for this host? Never for this machine itself."""
    names = {name.lower() for name, value in os.environ.items() if value}
    if host.startswith(_LOOPBACK) or names.isdisjoint({"http_proxy", "all_proxy"}):
        return False
    from urllib.request import proxy_bypass

    return not proxy_bypass(host)


def _too_late(address: str, timeout: float) -> TransientBackendError:
    return TransientBackendError(
        f"{address} gave no answer within {timeout:g} s",
        hint="raise --request-timeout if completions take longer than that",
    )


def _unavailable(address: str, message: str) -> ServerUnavailable:
    return ServerUnavailable(message, address=address, hint="start the model server, or correct --base-url")


def _root_cause(error: BaseException) -> BaseException:
    """The socket's or TLS's own error, below those of a general client."""
    if isinstance(error, BaseExceptionGroup):
        return _root_cause(error.exceptions[0])
    cause = error.__cause__ or error.__context__
    return error if cause is None else _root_cause(cause)


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
