"""HTTP for the OpenAI-compatible backend: one request, one whole answer, over kept connections of aiohttp.

    ServerUnavailable       no server listens, the name is unknown, no connection in time, a proxy's 5xx
    TransientBackendError   closed or reset before the answer was whole, no answer in time, not HTTP, too much
    FatalBackendError       a certificate that cannot be trusted, a proxy that refuses

An answer is bounded in every direction: `timeout` for all of it, and the sizes below for head and body.
"""

from __future__ import annotations

import errno
import functools
import socket
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from atropos_cli.sdk.backends import (
    BackendError,
    FatalBackendError,
    ServerUnavailable,
    TransientBackendError,
    place_of,
    proxy_for,
    tls_context,
)

if TYPE_CHECKING:
    import aiohttp

CONNECT_TIMEOUT = 10.0
MAX_LINE = 65536  # bytes of the status line, and of one header
MAX_HEADERS = 256
MAX_BODY = 1 << 28  # bytes after decompression; n=64 long replies with token ids and logprobs take a quarter of it
_STALE = 2.0  # seconds after which a lost connection was lost with the request, not before it
_IDLE = 60.0  # seconds that an unused connection is kept

_PROXY_MARKS = ("x-squid-error", "proxy-status", "proxy-agent", "proxy-connection")
"""Headers that only a proxy puts into an answer of its own."""


@dataclass(slots=True)
class HttpResponse:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpClient:
    """Requests to one origin (scheme, host, port), with its connections kept open between them.

    proxy: scheme, host and port of the proxy in use, or None. stale_retries: how often a kept connection turned
    out to be closed and the request was sent again.
    """

    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        """Raises ConfigError for a proxy of the environment that cannot be used."""
        parts = urlsplit(base_url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or (443 if self.secure else 80)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.address = f"{host}:{self.port}"
        self.origin = f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
        self.stale_retries = 0
        self._proxy_url = proxy_for(self.origin)
        self.proxy = place_of(self._proxy_url) if self._proxy_url else None
        # Compressed answers are read but not asked for: on a fast network they cost more than they save.
        self._headers = {"Accept-Encoding": "identity", **headers}
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    async def request(self, method: str, path: str, body: bytes | None, timeout: float) -> HttpResponse:
        """Send one request and read its answer. `path` begins with a slash; timeout counts from sending."""
        from atropos_cli.builtin.openai.connector import reused

        if self._kept is None:
            self._kept = self._session(force_close=False)
        reused.set(False)
        sent = time.monotonic()
        try:
            return await self._exchange(self._kept, method, path, body, timeout)
        except _Closed as error:
            passed = time.monotonic() - sent
            if not reused.get() or passed > _STALE:
                raise self._no_answer() from error
        # The server closed a kept connection just as the request went out: it has not seen it.
        self.stale_retries += 1
        if self._fresh is None:
            self._fresh = self._session(force_close=True)
        try:
            return await self._exchange(self._fresh, method, path, body, timeout - passed)
        except _Closed as error:
            raise self._no_answer() from error

    async def close(self) -> None:
        """Close all connections."""
        for session in (self._kept, self._fresh):
            if session is not None:
                await session.close()
        self._kept = self._fresh = None

    def _no_answer(self) -> TransientBackendError:
        return TransientBackendError(
            f"{self.address} closed the connection without an answer", hint="look into the server's log"
        )

    def _session(self, *, force_close: bool) -> aiohttp.ClientSession:
        """force_close: each request has a connection of its own."""
        import aiohttp

        from atropos_cli.builtin.openai.connector import Connector, open_socket

        connector = Connector(
            limit=0,
            ttl_dns_cache=60,
            resolver=aiohttp.ThreadedResolver(),  # the system's: hosts files and search domains count
            force_close=force_close,
            keepalive_timeout=None if force_close else _IDLE,
            socket_factory=open_socket,
            ssl=tls_context() if self.secure or (self.proxy or "").startswith("https:") else True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            proxy=self._proxy_url,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
        )

    async def _exchange(
        self, session: aiohttp.ClientSession, method: str, path: str, body: bytes | None, timeout: float
    ) -> HttpResponse:
        """Raises _Closed when the connection ended before the first byte of an answer, and BackendError."""
        import aiohttp

        try:
            response = await session.request(
                method,
                self.origin + path,
                data=body,
                headers={"Content-Type": "application/json"} if body is not None else None,
                allow_redirects=False,
                timeout=_timeout(timeout),
            )
            try:
                content = await self._read(response)
            except BaseException:
                response.close()
                raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._explained(error, timeout) from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        if self.proxy and not self.secure:
            self._check_proxy(response, headers, content)
        return HttpResponse(response.status, headers, content)

    def _check_proxy(self, response: aiohttp.ClientResponse, headers: dict[str, str], content: bytes) -> None:
        """Raise for a refusal that is a proxy's, or not that of a model server, which answers in JSON."""
        status, reason = response.status, response.reason or ""
        page = headers.get("content-type", "").startswith("text/html")
        marked = any(name in headers for name in _PROXY_MARKS)
        if (page and status == 200) or status == 407:
            raise self._proxy_said(status, reason or "a page in HTML")
        if status != 403 and status < 500:
            return
        if page or marked:
            raise self._proxy_said(status, reason or "a page in HTML")
        if content.lstrip()[:1] not in (b"{", b"["):
            words = content[:200].decode("utf-8", "replace").strip() or reason or "an empty answer"
            raise self._proxy_said(status, words, sure=False)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size, content = 0, response.content
        if (response.content_length or 0) <= MAX_BODY:
            while size <= MAX_BODY and not content.at_eof():
                part = await content.readany()
                parts.append(part)
                size += len(part)
            if size <= MAX_BODY:
                return parts[0] if len(parts) == 1 else b"".join(parts)
        raise TransientBackendError(
            f"{self.address} sends an answer of more than {MAX_BODY >> 20} MB",
            hint="is this a model server? If it is: lower --group-size or --max-tokens, or leave out --logprobs",
        )

    def _explained(self, error: Exception, timeout: float) -> Exception:
        """_Closed, or why no answer came about in the user's terms."""
        import aiohttp

        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return self._unavailable(f"no connection to {self._peer} within {min(timeout, CONNECT_TIMEOUT):.3g} s")
        if isinstance(error, TimeoutError):
            return TransientBackendError(
                f"{self.address} gave no answer within {timeout:.6g} s",
                hint="raise --request-timeout if completions take longer than that",
            )
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return self._proxy_said(error.status, error.message)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return self._not_connected(error.certificate_error)
        if isinstance(error, aiohttp.ClientConnectorError):
            return self._not_connected(error.os_error)
        if isinstance(error, aiohttp.ClientResponseError):
            return self._malformed(error.message)
        if isinstance(error, aiohttp.ServerDisconnectedError) and isinstance(error.message, str):
            return _Closed()
        if isinstance(error, aiohttp.ClientPayloadError) and "not completed" not in str(error):
            return self._malformed(str(error))
        if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError):
            return TransientBackendError(
                f"{self.address} closed the connection in the middle of an answer", hint="look into the server's log"
            )
        if isinstance(error, aiohttp.ClientOSError | aiohttp.ClientConnectionResetError | ConnectionError):
            return _Closed()
        return TransientBackendError(f"{self.address} broke off: {type(error).__name__}: {error}")

    @property
    def _peer(self) -> str:
        """Where connections go to."""
        return f"the proxy {self.proxy}" if self.proxy else self.address

    def _malformed(self, why: str) -> TransientBackendError:
        """why: the parser's words; a picture of the place follows behind an empty line."""
        why = " ".join(why.partition("\n\n")[0].split()).rstrip(":")
        if "Expected HTTP/" in why:
            return TransientBackendError(
                f"{self.address} does not answer in HTTP",
                hint="is this the right port, and http:// rather than https://?",
            )
        return TransientBackendError(
            f"{self.address} sent a malformed HTTP answer ({why[:200]})",
            hint=f"curl -v {self.origin} shows it; a proxy or tunnel in between may be to blame",
        )

    def _proxy_said(self, status: int, words: str, *, sure: bool = True) -> BackendError:
        message = f"the proxy {self.proxy} answered {status} in place of {self.address}: {words}"
        if not sure:
            message = f"{status} came through the proxy {self.proxy}, from it or from {self.address}: {words}"
        if status == 407:
            return FatalBackendError(message, hint="give user and password: http://USER:PASSWORD@HOST:PORT")
        hint = f"no_proxy={self.host} reaches the server without the proxy"
        if status >= 500:
            return ServerUnavailable(message, address=self.address, hint=hint)
        return FatalBackendError(message, hint=hint)

    def _unavailable(self, message: str) -> ServerUnavailable:
        hint = "start the model server, or correct --base-url"
        if self.proxy:
            hint = f"correct the proxy, or no_proxy={self.host} to reach the server without it"
        return ServerUnavailable(message, address=self.address, hint=hint)

    def _not_connected(self, error: BaseException) -> BackendError:
        """Why no connection came about."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return FatalBackendError(
                f"the certificate of {self.address} cannot be trusted: {error.verify_message}",
                hint="add its authority with SSL_CERT_FILE, or use http:// for a server of your own",
            )
        if isinstance(error, ssl.SSLError):
            return self._unavailable(f"{self.address} does not speak TLS: {error.reason or error}")
        if isinstance(error, socket.gaierror):
            host = urlsplit(self.proxy).hostname if self.proxy else self.host
            return self._unavailable(f"cannot find the host {host!r}: {error.strerror or error}")
        code = error.errno if isinstance(error, OSError) else None
        if code in (errno.EMFILE, errno.ENFILE):
            return TransientBackendError(
                "this process has too many open files for one more connection",
                hint="ulimit -n 8192, or fewer --workers",
            )
        # The errors of several addresses are joined in one text.
        if code == errno.ECONNREFUSED or f"Errno {errno.ECONNREFUSED}]" in str(error):
            return self._unavailable(f"no server listens at {self._peer}")
        return self._unavailable(f"cannot connect to {self._peer}: {error}")


class _Closed(Exception):
    """The connection ended before the first byte of an answer."""


@functools.lru_cache
def _timeout(total: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=total, connect=min(total, CONNECT_TIMEOUT))
