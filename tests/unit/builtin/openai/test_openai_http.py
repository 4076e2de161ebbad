"""The HTTP client against raw sockets: framing, kept connections, and every way to be let down."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atropos_cli.builtin.openai.http import HttpClient
from atropos_cli.sdk.backends import FatalBackendError, ServerUnavailable, TransientBackendError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpClient]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    client = HttpClient(
        f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}", {"X-Test": "1"}
    )
    try:
        yield client
    finally:
        await client.close()
        server.close()


def answering(*pieces: bytes, pause: float = 0.0) -> Handler:
    """Answer each request with these pieces of bytes, then wait for the next one."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)

    return handler


async def post(client: HttpClient, timeout: float = 5.0) -> tuple[int, bytes]:
    response = await client.request("POST", "/v1/x", b"{}", timeout)
    return response.status, response.body


@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",), b"hello"),
        ((b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n",), b""),
        ((b"HTT", b"P/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r", b"\nhel", b"lo"), b"hello"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), b"ok"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b"2;x=y\r\nde\r\n0\r\n\r\n"), b"abcde"),
        (
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n", b"0\r\nA: b\r\n\r\n"),
            b"\r\n\r\n",
        ),
        (
            (
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
                % len(gzip.compress(b"zip", mtime=0)),
                gzip.compress(b"zip", mtime=0),
            ),
            b"zip",
        ),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
    ],
)
async def test_framings_and_the_connection_is_kept(pieces: tuple[bytes, ...], body: bytes) -> None:
    connections = 0

    async def counting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(*pieces, pause=0.002)(reader, writer)

    async with serving(counting) as client:
        for _ in range(3):
            status, got = await post(client)
            assert status in (200, 204)
            assert got == body
    assert connections == 1


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")

    async with serving(handler) as client:
        assert await post(client) == (200, b"all of it")
        assert await post(client) == (200, b"all of it")


async def test_what_is_sent() -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            seen.append(await read_request(reader))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with serving(handler) as client:
        await client.request("POST", "/v1/x", b'{"a":1}', 5)
        await client.request("GET", "/health", None, 5)
    head, body = seen[0]
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/x HTTP/1.1"
    assert b"Host: " + client.address.encode() in lines
    assert b"X-Test: 1" in lines
    assert b"Content-Length: 7" in lines
    assert body == b'{"a":1}'
    assert seen[1][0].startswith(b"GET /health HTTP/1.1\r\n")


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}", {})
    with pytest.raises(ServerUnavailable, match=rf"no server listens at 127\.0\.0\.1:{port}") as caught:
        await post(client)
    assert caught.value.address == f"127.0.0.1:{port}"


async def test_an_unknown_host() -> None:
    with pytest.raises(ServerUnavailable, match=r"cannot find the host 'nowhere\.invalid'"):
        await post(HttpClient("http://nowhere.invalid:8000", {}))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-", "closed the connection in the middle of an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "closed the connection in the middle of an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "closed the connection in the middle of an answer"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "in the middle of an answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does not answer in HTTP"),
        (b"HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope", "malformed"),
    ],
)
async def test_broken_answers_are_transient(sent: bytes, message: str) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(sent)

    async with serving(handler) as client:
        with pytest.raises(TransientBackendError, match=message) as caught:
            await post(client)
    assert not isinstance(caught.value, ServerUnavailable)
    assert client.address in caught.value.message


async def test_a_reset_is_transient() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        writer.transport.abort()

    async with serving(handler) as client:
        with pytest.raises(TransientBackendError, match="without an answer"):
            await post(client)


async def test_no_answer_in_time_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        assert await reader.read() == b""  # until the client gives up
        closed.set()

    async with serving(handler) as client:
        begin = time.monotonic()
        with pytest.raises(TransientBackendError, match=r"no answer within 0\.1 s") as caught:
            await post(client, timeout=0.1)
        assert time.monotonic() - begin < 2
        assert "--request-timeout" in str(caught.value.hint)
        await asyncio.wait_for(closed.wait(), 5)


async def test_cancelling_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()
        closed.set()

    async with serving(handler) as client:
        task = asyncio.create_task(post(client))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), 5)


async def test_a_kept_connection_that_was_closed_is_replaced_within_the_attempt() -> None:
    answered = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and drop the second one of the same connection unread."""
        nonlocal answered
        await read_request(reader)
        answered += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await reader.readexactly(1)

    async with serving(once) as client:
        assert await post(client) == (200, b"ok")
        assert await post(client) == (200, b"ok")
    assert client.stale_retries == 1
    assert answered == 2


async def test_a_stale_connection_is_retried_once_only() -> None:
    requests = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await read_request(reader)
        if requests == 1:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await reader.readexactly(1)

    async with serving(handler) as client:
        await post(client)
        with pytest.raises(TransientBackendError, match="without an answer"):
            await post(client)
    assert requests == 2


async def test_a_kept_connection_lost_while_the_server_works_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_cli.builtin.openai.http._STALE", 0.05)
    requests = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await read_request(reader)
        requests += 1
        await asyncio.sleep(0.2)

    async with serving(handler) as client:
        await post(client)
        with pytest.raises(TransientBackendError, match="without an answer"):
            await post(client)
    assert requests == 1


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nConnection: close\r\n", b"HTTP/1.0 200 OK\r\n"])
async def test_connections_that_end_are_not_reused(head: bytes) -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await read_request(reader)
            writer.write(head + b"Content-Length: 2\r\n\r\nok")

    async with serving(handler) as client:
        for _ in range(2):
            assert await post(client) == (200, b"ok")
    assert connections == 2
    assert client.stale_retries == 0


async def test_bytes_behind_an_answer_do_not_reach_the_next_request() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 X\r\n\r\n")) as client:
        for _ in range(3):
            assert await post(client) == (200, b"ok")


async def test_requests_share_connections_but_never_at_once() -> None:
    running = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal running
        while True:
            _, body = await read_request(reader)
            running += 1
            await asyncio.sleep(0.005)
            running -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async with serving(handler) as client:

        async def one(number: int) -> bool:
            body = str(number).encode() * 50
            return (await client.request("POST", "/", body, 5)).body == body

        assert all(await asyncio.gather(*(one(number) for number in range(100))))


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return key, certificate


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
async def test_https_trusts_only_what_the_user_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), context) as client:
        with pytest.raises(FatalBackendError, match=r"the certificate of 127\.0\.0\.1:\d+ cannot be trusted"):
            await post(client)
        await client.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert await post(client) == (200, b"ok")


async def test_https_to_a_server_without_tls_and_to_nobody() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with serving(plain) as server:
        client = HttpClient(server.origin.replace("http:", "https:"), {})
        with pytest.raises(ServerUnavailable, match="does not speak TLS"):
            await post(client)
        await client.close()
    client = HttpClient(server.origin.replace("http:", "https:"), {})
    with pytest.raises(ServerUnavailable, match="no server listens at"):
        await post(client)
    await client.close()


async def test_proxies_of_the_environment_are_used_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        seen.append(head.split(b"\r\n")[0])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy")

    async with serving(proxy) as server:
        monkeypatch.setenv("http_proxy", server.origin)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        client = HttpClient("http://gpu-7.invalid:8000", {})
        assert await post(client) == (200, b"proxy")
        assert seen == [b"POST http://gpu-7.invalid:8000/v1/x HTTP/1.1"]
        await client.close()
        assert await post(HttpClient(server.origin, {})) == (200, b"proxy")
        assert seen[1] == b"POST /v1/x HTTP/1.1"
        monkeypatch.setenv("no_proxy", ".invalid")
        with pytest.raises(ServerUnavailable, match="cannot find the host"):
            await post(HttpClient("http://gpu-7.invalid:8000", {}))
