"""Between the network and the endpoints: who may ask, how large a body may be, gzip, and a count of requests."""

from __future__ import annotations

import hmac
import re
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = frozenset({"/", "/live", "/docs", "/openapi.json", "/assets/live.js", "/assets/docs.js", "/assets/page.css"})
"""Pages without data: browsers cannot send a token with them."""
_CHUNK = 2**20
_SLICE = 512
_PADDING = re.compile(rb"\0*")


@dataclass(slots=True)
class Rules:
    """local: only names of this machine are answered to. log: gets a line for each request."""

    token: str | None = None
    local: bool = True
    max_body: int = 256 * 2**20
    log: Callable[[str], None] | None = None
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)


class _Stop(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


Direct = Callable[[dict[bytes, bytes], bytes], Awaitable[ASGIApp | None]]
"""From the headers that are read here, and a body, to a response; None leaves the request to the application."""


class Gate:
    """ASGI middleware. Bodies are read here, whole and decompressed.

    direct: by method and path, what answers without the way through the application; that way is half of the time that
    a group costs.
    """

    def __init__(self, app: ASGIApp, rules: Rules, direct: Mapping[tuple[str, str], Direct]) -> None:
        self._app = app
        self._rules = rules
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        start = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        headers = {name: value for name, value in scope["headers"] if name in _READ}
        try:
            self._admit(scope["path"], headers)
            inner = receive
            body = b""
            if b"content-length" in headers or b"transfer-encoding" in headers:
                body = await self._body(headers, receive)
                if b"content-encoding" in headers:
                    scope = {**scope, "headers": _decoded(scope["headers"], len(body))}
                inner = _replay(body, receive)
            direct = self._direct.get((scope["method"], scope["path"]))
            answer = None if direct is None else await direct(headers, body)
            await (self._app if answer is None else answer)(scope, inner, watched)
        except _Stop as stop:
            await _refuse(stop, watched)
        finally:
            self._count(scope, status, time.perf_counter() - start)

    def _count(self, scope: Scope, status: int, took: float) -> None:
        method, path = str(scope["method"]), str(scope["path"])
        if (method, path) not in self._direct:
            path = str(getattr(scope.get("route"), "path", "other"))
        self._rules.requests[method, path, status] += 1
        if self._rules.log is not None:
            client = (scope.get("client") or ("-",))[0]
            self._rules.log(f"{client} {scope['method']} {ascii(scope['path'])[1:-1]} {status} {took * 1000:.1f} ms")

    def _admit(self, path: str, headers: dict[bytes, bytes]) -> None:
        rules = self._rules
        if path in OPEN:
            return
        if rules.token is not None:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, f"Bearer {rules.token}".encode()):
                raise _Stop(401, "the server asks for a token: Authorization: Bearer TOKEN")
        elif rules.local and _host(headers.get(b"host", b"")) not in LOOPBACK_NAMES:
            raise _Stop(421, "this server answers to this machine only")
        # A web site that somebody on this machine looks at could send requests here.
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise _Stop(403, "requests of other web sites are refused")
        # Browsers leave that header out where they do not trust the address, as in http://HOST:8000.
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"//")[2] != headers.get(b"host"):
            raise _Stop(403, "requests of other web sites are refused")

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self._rules.max_body
        large = f"a body of more than {most:,} bytes; --max-body allows more"
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > most:
            raise _Stop(413, large)
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Stop(400, "the body ended early")
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > most:
                raise _Stop(413, large)
            if not message.get("more_body", False):
                break
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        coding = headers.get(b"content-encoding", b"").strip().lower()
        if coding in (b"", b"identity"):
            return body
        if coding not in (b"gzip", b"x-gzip"):
            raise _Stop(415, "the only Content-Encoding is gzip")
        if not body:
            return body
        try:
            return gunzip(body, most)
        except OverflowError:
            raise _Stop(413, large) from None
        except (zlib.error, EOFError):
            raise _Stop(400, "Invalid gzip payload") from None


_READ = frozenset(
    b"authorization host sec-fetch-site content-length content-encoding transfer-encoding accept-encoding "
    b"idempotency-key x-atropos-step x-atropos-lease x-atropos-ack origin".split()
)


def gunzip(data: bytes, most: int) -> bytes:
    """All members of a gzip file. Raises OverflowError above `most` bytes, zlib.error or EOFError for damage."""
    parts, size, place = [], 0, 0
    view = memoryview(data)
    while place < len(data):
        stream = zlib.decompressobj(31)
        # What it does not use is copied: slices grow with a member, so that many small ones take no longer.
        length = _SLICE
        while not stream.eof:
            piece = view[place : place + length]
            part = stream.decompress(piece, min(most - size + 1, max(_CHUNK, len(piece) * 8)))
            place += len(piece) - len(stream.unused_data if stream.eof else stream.unconsumed_tail)
            size += len(part)
            if size > most:
                raise OverflowError
            if not piece and not part and not stream.eof:
                raise EOFError
            parts.append(part)
            length = min(2 * length, _CHUNK)
        place += _zeros(data, place)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _zeros(data: bytes, place: int) -> int:
    """How many zero bytes, which tapes and some programs append, are at a place."""
    found = _PADDING.match(data, place)
    return found.end() - place if found else 0


def _host(header: bytes) -> str | None:
    name = header.partition(b":")[0].decode("latin-1")
    if name in LOOPBACK_NAMES:
        return name
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname
    except ValueError:
        return None


def _decoded(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name not in (b"content-encoding", b"content-length")]
    return [*kept, (b"content-length", str(length).encode())]


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(stop: _Stop, send: Send) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if stop.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    body = f"{stop}\n".encode()
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": stop.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
