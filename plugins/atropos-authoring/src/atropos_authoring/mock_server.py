"""A real HTTP server on 127.0.0.1 that behaves, and misbehaves, like an OpenAI-compatible model server.

    with MockServer([{"status": 429, "headers": {"Retry-After": "2"}}, {"reply": "ok"}]) as server:
        backend = OpenAIBackend(OpenAIConfig(base_url=server.base_url))
        ...
    assert server.generations[0].json["n"] == 8

A script is a list of entries, taken in turn by the generation requests (/v1/chat/completions,
/v1/completions, /generate); other paths are answered as a healthy server would. Keys of an entry:

    status, headers, json | text   the answer, as it is
    reply                          content of an ordinary answer
    stream                         lines of an event stream, sent as `data: ...`
    action    close_before_response | hang | end_body (end the body where it stands, no [DONE])
              | cut_body (promise more bytes than are sent)
    times     how many requests the entry serves; -1 for all; 1 if absent, all if it is the last
    path      serve only requests whose path ends with this, of any kind (then /v1/models, /health too)

Without a script it answers every request. `flavor` decides which optional fields it knows: "openai" none,
"strict" none and it refuses unknown ones, "vllm" and "sglang" token ids and logprobs in the shape of each.
Ids follow the rule of the scripted backend: one per UTF-8 byte, so a prompt extends the turns before it.

It runs in a thread of its own (start/stop, or `with`), so it serves synchronous tests too. For a process
of its own: `python -m atropos_authoring.mock_server --port 8000 --flavor vllm`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from atropos_authoring.mock_model import GENERATION_PATHS, Flavor, MockModel


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request as it came in. `time` is time.monotonic() at its end."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    time: float

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(slots=True)
class _Entry:
    spec: dict[str, Any]
    left: int


class MockServer:
    """The server. `model` (what it answers), `delay` and `handler` may be changed while it runs.

    handler: looks at each generation request first; may return an entry, which then serves the request.
    """

    def __init__(
        self,
        script: Sequence[dict[str, Any]] = (),
        *,
        flavor: Flavor = "openai",
        reply: str | Callable[[dict[str, Any], int], Any] = "ok",
        **options: Any,
    ) -> None:
        """options: models (names), honours_n, api_key: see MockModel; delay (0.0 s before each generation);
        handler; port (0: any free one); host to listen on; tls: an ssl.SSLContext to serve https."""
        self.model = MockModel(
            flavor=flavor,
            reply=reply,
            names=tuple(options.pop("models", ("mock-model",))),
            honours_n=options.pop("honours_n", True),
            api_key=options.pop("api_key", None),
        )
        self.delay: float = options.pop("delay", 0.0)
        self.handler: Callable[[RecordedRequest], dict[str, Any] | None] | None = options.pop("handler", None)
        self.port: int = options.pop("port", 0)
        self.host: str = options.pop("host", "127.0.0.1")
        self.tls: ssl.SSLContext | None = options.pop("tls", None)
        if options:
            raise TypeError(f"unknown options of MockServer: {', '.join(options)}")
        self.requests: list[RecordedRequest] = []
        self.connections = 0  # how many were ever made
        self.in_flight = 0
        self.max_in_flight = 0
        self._script: list[_Entry] = []
        self.script(script)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._open: set[_Connection] = set()

    def script(self, entries: Sequence[dict[str, Any]]) -> None:
        """Follow this script from now on."""
        last = len(entries) - 1
        self._script = [
            _Entry(entry, entry.get("times", -1 if index == last else 1)) for index, entry in enumerate(entries)
        ]

    @property
    def root(self) -> str:
        """http://127.0.0.1:PORT (https:// with tls)"""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """The base URL to give a client: root + /v1."""
        return f"{self.root}/v1"

    @property
    def generations(self) -> list[RecordedRequest]:
        """The generation requests, in order of arrival."""
        return [request for request in self.requests if request.path.endswith(GENERATION_PATHS)]

    def start(self) -> MockServer:
        """Listen, in a thread. After stop() it listens on the same port again. Raises OSError for a taken port."""
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="mock-server", daemon=True)
        self._thread.start()
        self.port = ready.result(timeout=10)
        return self

    def stop(self) -> None:
        """Stop listening and drop all connections, as a server that dies. Harmless when not running."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        self._loop = self._thread = None

    def __enter__(self) -> MockServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def drop_idle(self) -> None:
        """Close the connections that are waiting for a request, as servers do after a while."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._close_idle)

    def _close_idle(self) -> None:
        for connection in list(self._open):
            if connection.idle and connection.transport is not None:
                connection.transport.close()

    def _run(self, ready: Future[int]) -> None:
        loop = asyncio.new_event_loop()
        try:
            listening = loop.create_server(lambda: _Connection(self), self.host, self.port, ssl=self.tls)
            server = loop.run_until_complete(listening)
        except OSError as error:
            loop.close()
            ready.set_exception(error)
            return
        self._loop = loop
        ready.set_result(server.sockets[0].getsockname()[1])
        try:
            loop.run_forever()
        finally:
            server.close()
            for connection in list(self._open):
                if connection.transport is not None:
                    connection.transport.abort()
            loop.run_until_complete(asyncio.sleep(0))  # lets the connections learn that they are gone
            self.in_flight = 0
            loop.close()

    def _entry(self, request: RecordedRequest) -> dict[str, Any] | None:
        """The entry that serves this request; None for an ordinary answer."""
        generation = request.path.endswith(GENERATION_PATHS)
        if generation and self.handler is not None and (spec := self.handler(request)) is not None:
            return spec
        for entry in self._script:
            path = entry.spec.get("path")
            matches = generation if path is None else request.path.endswith(path)
            if matches and entry.left != 0:
                entry.left -= 1
                return entry.spec
        if generation and any("path" not in entry.spec for entry in self._script):
            return {"status": 500, "json": {"error": {"message": "the mock server's script is at its end"}}}
        return None


class _Connection(asyncio.Protocol):
    """One client: requests are read one after the other and answered in that order."""

    def __init__(self, server: MockServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.idle = True
        self._generating = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.connections += 1
        self._server._open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server._open.discard(self)
        self._done()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self.idle:
            self._next()

    def _next(self) -> None:
        """Take one whole request out of the buffer, if there is one."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        method, path, _ = first.split(" ", 2)
        request = RecordedRequest(method, path.partition("?")[0], headers, body, time.monotonic())
        self._serve(request)

    def _serve(self, request: RecordedRequest) -> None:
        server = self._server
        server.requests.append(request)
        self.idle = False
        if not request.path.endswith(GENERATION_PATHS):
            self._respond(request)
            return
        server.in_flight += 1
        server.max_in_flight = max(server.max_in_flight, server.in_flight)
        self._generating = True
        if server.delay > 0:
            asyncio.get_running_loop().call_later(server.delay, self._respond, request)
        else:
            self._respond(request)

    def _done(self) -> None:
        if self._generating:
            self._generating = False
            self._server.in_flight -= 1

    def _respond(self, request: RecordedRequest) -> None:
        transport = self.transport
        entry = self._server._entry(request)
        action = entry.get("action") if entry is not None else None
        if action == "hang":
            return  # in flight for as long as the client waits
        self._done()
        if transport is None or transport.is_closing():
            return
        if action == "close_before_response":
            transport.close()
            return
        if entry is None or "reply" in entry:
            status, body = self._ordinary(request, entry)
            headers = dict(entry.get("headers", {})) if entry is not None else {}
            content_type = "application/json"
        else:
            status, headers = int(entry.get("status", 200)), dict(entry.get("headers", {}))
            content_type, body = _entry_body(entry)
        head = f"HTTP/1.1 {status} Mock\r\nContent-Type: {content_type}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        if action == "end_body":
            # Ended by closing the connection: a body of no stated length.
            transport.write(f"{head}Connection: close\r\n\r\n".encode("latin-1") + body)
            transport.close()
            return
        length = len(body) + (100 if action == "cut_body" else 0)
        transport.write(f"{head}Content-Length: {length}\r\n\r\n".encode("latin-1") + body)
        if action == "cut_body":
            transport.close()
            return
        self.idle = True
        if self._buffer:
            self._next()

    def _ordinary(self, request: RecordedRequest, entry: dict[str, Any] | None) -> tuple[int, bytes]:
        model = self._server.model
        if entry is not None:
            model = replace(model, reply=entry["reply"])
        return model.answer_bytes(request.path, request.headers, request.body)


def _entry_body(entry: dict[str, Any]) -> tuple[str, bytes]:
    if "stream" in entry:
        lines = [f"data: {line}\n\n" for line in entry["stream"]]
        if entry.get("action") != "end_body":
            lines.append("data: [DONE]\n\n")
        return "text/event-stream", "".join(lines).encode()
    if "text" in entry:
        return "text/html", entry["text"].encode("utf-8", "surrogatepass")
    return "application/json", json.dumps(entry.get("json", {})).encode()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A mock OpenAI-compatible model server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--flavor", choices=["openai", "strict", "vllm", "sglang"], default="openai")
    parser.add_argument("--model", default="mock-model")
    parser.add_argument("--reply", default="ok")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--certificate", help="PEM file of a certificate and its key: serve https")
    args = parser.parse_args(argv)
    listen = {"host": args.host, "port": args.port}
    if args.certificate is not None:
        listen["tls"] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        listen["tls"].load_cert_chain(args.certificate)
    server = MockServer(flavor=args.flavor, models=(args.model,), reply=args.reply, delay=args.delay, **listen)
    with server:
        print(server.base_url, flush=True)  # noqa: T201 - the one line that tells where it listens
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
