"""The server of the page: GET only, this machine only, under an address that cannot be guessed.

The first part of every path is a random secret, so that other users of the machine cannot read along. A request
whose Host is not this machine is refused: a web site whose name was made to point here gets nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from atropos_cli.sdk import AtroposError, UsageError
from atropos_view.page.index import RunIndex
from atropos_view.page.library import BadRequest, Library
from atropos_view.page.page import SCRIPTS, STYLE, TYPES, asset, served_page

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ALONE = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; sandbox"
"""The policy of a page that holds its style itself, and no scripts."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Is it a name or an address of this machine only?"""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ViewServer(ThreadingHTTPServer):
    """Serves a library, or a list of runs with a library of each, until `shutdown`. `url` is the page's address."""

    daemon_threads = True
    request_queue_size = 32

    def __init__(self, library: Library | RunIndex, host: str = "127.0.0.1", port: int = 0) -> None:
        self.library = library
        self.secret = secrets.token_urlsafe(16)
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(
                f"cannot listen on {host} port {port}: {reason}", hint="--port 0 takes a free one"
            ) from error

    def server_bind(self) -> None:
        # HTTPServer looks up the machine's full name here, which may take seconds and is not needed.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.host, self.server_address[1]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}/{self.secret}/"

    def knows_host(self, header: str | None) -> bool:
        """May a request name this host? Any port: it may come through a tunnel."""
        host = urlsplit(f"//{header or ''}").hostname
        if not is_loopback(self.host):
            return True  # asked for by --host; the secret guards it
        return host in LOOPBACK_NAMES or host == self.host

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: ViewServer
    protocol_version = "HTTP/1.1"
    server_version = "atropos"
    sys_version = ""
    timeout = 60
    policy = POLICY

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self.policy = POLICY
        try:
            if not self.server.knows_host(self.headers.get("Host")):
                status, kind, body = 421, "text/plain", b"this server answers to this machine only\n"
            else:
                status, kind, body = self._content()
        except ValueError:  # a Host or path that is none
            status, kind, body = 400, "text/plain", b"not understood\n"
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"' if kind == "application/json" else None
        if status == 200 and tag is not None and self.headers.get("If-None-Match") == tag:
            status, body = 304, b""
        self.send_response(status)
        self.send_header("Content-Security-Policy", self.policy)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if tag is not None:
            self.send_header("ETag", tag)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def _content(self) -> tuple[int, str, bytes]:
        parts = urlsplit(self.path)
        _, secret, *rest = parts.path.split("/")
        missing = (404, "text/plain", b"not here; the address that was printed has a secret part\n")
        if not hmac.compare_digest(secret.encode(), self.server.secret.encode()):
            return missing
        library, name = self.server.library, "/".join(rest)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        if isinstance(library, Library):
            return self._of_library(library, name, given) or missing
        if not name.startswith("run/"):
            return library.content(name) or missing
        key, _, name = name.removeprefix("run/").partition("/")
        if name == "curves":
            self.policy = ALONE
            page = library.curves(key)
            return missing if page is None else (200, "text/html; charset=utf-8", page)
        try:
            found = library.library(key)
        except AtroposError as error:
            if name.startswith("api/"):  # asked by a page that was opened before
                return 404, "application/json", json.dumps({"error": str(error)}).encode()
            return 404, "text/plain; charset=utf-8", f"{error}\n".encode("utf-8", "replace")
        return missing if found is None else self._of_library(found, name, given, listed=True) or missing

    def _of_library(
        self, library: Library, name: str, given: dict[str, str], *, listed: bool = False
    ) -> tuple[int, str, bytes] | None:
        if name == "":
            title = library.title
            return 200, "text/html; charset=utf-8", served_page(title, listed=listed).encode("utf-8", "replace")
        if name in SCRIPTS or name == STYLE:
            return 200, TYPES[name[name.rindex(".") :]], asset(name).encode()
        if not name.startswith("api/"):
            return None
        return self._data(library, name.removeprefix("api/"), given)

    def _data(self, library: Library, what: str, given: dict[str, str]) -> tuple[int, str, bytes]:
        try:
            answer = library.answer(what, given)
        except BadRequest as error:
            return 400, "application/json", json.dumps({"error": str(error)}).encode()
        if answer is None:
            return 404, "application/json", b'{"error": "no such request"}'
        return 200, "application/json", json.dumps(answer, allow_nan=False).encode("ascii")

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""
