"""The HTTP client against servers and proxies that misbehave: bounded time and memory, and an error that names it."""

from __future__ import annotations

import asyncio
import gzip
import resource
import shutil
import ssl
import subprocess
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atropos_cli.builtin.openai import http
from atropos_cli.builtin.openai.http import HttpClient
from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import BackendError, FatalBackendError, ServerUnavailable, TransientBackendError

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The URL of a server that runs `handler` on each connection after the first request's head."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def ask(url: str, timeout: float = 5.0) -> bytes:
    client = HttpClient(url, {})
    try:
        return (await client.request("POST", "/v1/x", b"{}", timeout)).body
    finally:
        await client.close()


def saying(data: bytes) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await reader.read()

    return handler


def repeating(start: bytes, data: bytes, pause: float = 0.0) -> Handler:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while not writer.is_closing():
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(pause)

    return handler


MALFORMED = {
    "negative length": OK + b"Content-Length: -1\r\n\r\nok",
    "signed length": OK + b"Content-Length: +2\r\n\r\nok",
    "conflicting lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
    "list of lengths": OK + b"Content-Length: 2, 3\r\n\r\nokk",
    "length beside chunks": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "length of 30 digits": OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nok",
    "chunk size that overflows": OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\nok\r\n0\r\n\r\n",
    "negative chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n",
    "chunk size that is no number": OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nok\r\n0\r\n\r\n",
    "chunk longer than its size": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nokay\r\n0\r\n\r\n",
    "header of 1 MB": OK + b"X: " + b"x" * 1_000_000 + b"\r\nContent-Length: 2\r\n\r\nok",
    "header without a colon": OK + b"nonsense\r\nContent-Length: 2\r\n\r\nok",
    "broken gzip": OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
async def test_malformed_answers_are_refused_at_once(data: bytes) -> None:
    async with serving(saying(data)) as url:
        began = time.monotonic()
        with pytest.raises(TransientBackendError, match="malformed HTTP answer") as caught:
            await ask(url)
        assert time.monotonic() - began < 2
    assert url.partition("//")[2] in caught.value.message
    assert caught.value.hint


async def test_an_endless_head_is_cut_off() -> None:
    async with serving(repeating(OK, b"X-Again: " + b"x" * 1000 + b"\r\n")) as url:
        with pytest.raises(TransientBackendError, match="malformed HTTP answer") as caught:
            await ask(url, timeout=20)
    assert "header" in caught.value.message.lower()


@pytest.mark.parametrize(
    ("start", "data"),
    [
        (OK + b"\r\n", b"x" * 65536),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        (OK + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65536),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n", b"x" * 65536),
    ],
    ids=["until the end", "chunks", "stated length", "one huge chunk"],
)
async def test_an_endless_body_is_cut_off(start: bytes, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY", 8 << 20)
    async with serving(repeating(start, data)) as url:
        with pytest.raises(TransientBackendError, match="an answer of more than 8 MB") as caught:
            await ask(url, timeout=20)
    assert "--group-size" in str(caught.value.hint)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_bomb_is_cut_off(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 MB of zeros in 256 kB."""
    monkeypatch.setattr(http, "MAX_BODY", 8 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
    block = bytes(1 << 20)
    bomb = b"".join([packer.compress(block) for _ in range(256)] + [packer.flush()])
    head = OK + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding.encode(), len(bomb))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with serving(saying(head + bomb)) as url:
        with pytest.raises(TransientBackendError, match="an answer of more than 8 MB"):
            await ask(url)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


async def test_a_compressed_answer_below_the_bound_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY", 8 << 20)
    body = gzip.compress(b"a" * (7 << 20))
    async with serving(saying(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)) as url:
        assert await ask(url) == b"a" * (7 << 20)


TRICKLES = {
    "interim answers": repeating(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.02),
    "interim answers as fast as they come": repeating(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 50),
    "header by header": repeating(OK, b"X: y\r\n", 0.02),
    "body": repeating(OK + b"Content-Length: 100000\r\n\r\n", b"x", 0.02),
    "chunks": repeating(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.02),
    "chunk size in one digit after the other": repeating(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0", 0.02),
    "body that never comes": saying(OK + b"Content-Length: 10\r\n\r\n"),
    "last chunk that never comes": saying(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"),
    "chunk that ends as a body may": saying(OK + b"Transfer-Encoding: chunked\r\n\r\n8\r\nab\r\n\r\n"),
}


@pytest.mark.parametrize("handler", TRICKLES.values(), ids=TRICKLES.keys())
async def test_one_timeout_holds_for_the_whole_answer(handler: Handler) -> None:
    async with serving(handler) as url:
        began = time.monotonic()
        with pytest.raises(TransientBackendError, match=r"no answer within 0\.7 s") as caught:
            await ask(url, timeout=0.7)
        assert time.monotonic() - began < 3
    assert "--request-timeout" in str(caught.value.hint)


async def test_a_half_closed_connection_ends_the_answer() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 10\r\n\r\nhalf")
        writer.write_eof()
        await reader.read()

    async with serving(handler) as url:
        began = time.monotonic()
        with pytest.raises(TransientBackendError, match="closed the connection in the middle of an answer"):
            await ask(url)
        assert time.monotonic() - began < 2


async def test_bytes_that_come_between_two_requests_are_no_answer() -> None:
    """An answer nobody asked for must not be taken for that of the next request."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        for text in (b"mine", b"evil"):
            writer.write(OK + b"Content-Length: 4\r\n\r\n" + text)
            await writer.drain()
            await asyncio.sleep(0.05)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: 4\r\n\r\nlate")

    async with serving(handler) as url:
        client = HttpClient(url, {})
        for _ in range(3):
            assert (await client.request("POST", "/", b"{}", 5)).body == b"mine"
            await asyncio.sleep(0.1)
        await client.close()


async def test_more_than_an_answer_does_not_reach_the_next_request() -> None:
    more = b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n"
    async with serving(saying(OK + b"Content-Length: 2\r\n\r\nok" + more)) as url:
        client = HttpClient(url, {})
        for _ in range(3):
            assert (await client.request("POST", "/", b"{}", 2)).body == b"ok"
        await client.close()


@pytest.mark.parametrize("garbage", [b"garbage", b"\r\n\r\n\x00"])
async def test_garbage_behind_an_answer_is_refused(garbage: bytes) -> None:
    async with serving(saying(OK + b"Content-Length: 2\r\n\r\nok" + garbage)) as url:
        with pytest.raises(TransientBackendError, match="does not answer in HTTP"):
            await ask(url)


async def test_a_redirect_is_not_followed() -> None:
    async with serving(saying(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")) as url:
        client = HttpClient(url, {})
        response = await client.request("POST", "/", b"{}", 2)
        await client.close()
    assert (response.status, response.headers["location"]) == (307, "http://127.0.0.1:1/")


@pytest.fixture
def of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """TLS with a trusted certificate that is not for 127.0.0.1."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other.example"]
    command += ["-addext", "subjectAltName=DNS:other.example", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    return context


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
async def test_a_certificate_of_another_name(of_another_name: ssl.SSLContext) -> None:
    async with serving(saying(OK + b"Content-Length: 2\r\n\r\nok"), of_another_name) as url:
        with pytest.raises(FatalBackendError, match=r"127\.0\.0\.1:\d+ cannot be trusted: IP address mismatch"):
            await ask(url)


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the proxy of the environment."""

    def setting(url: str) -> None:
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("https_proxy", url)

    return setting


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (b"407 Proxy Authentication Required", FatalBackendError),
        (b"403 Forbidden", FatalBackendError),
        (b"502 Bad Gateway", ServerUnavailable),
    ],
)
async def test_a_page_of_a_proxy_is_named_as_the_proxys(
    scheme: str, status: bytes, kind: type[BackendError], behind: Callable[[str], None]
) -> None:
    page = b"<html><title>Access denied</title></html>"
    data = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (status, len(page), page)
    async with serving(saying(data)) as proxy:
        behind(proxy.replace("//", "//user:s3cretword@"))
        with pytest.raises(kind, match=f"the proxy {proxy} answered {status[:3].decode()}") as caught:
            await ask(f"{scheme}://gpu-7.invalid:8000")
    assert "gpu-7.invalid:8000" in caught.value.message
    assert "s3cretword" not in str(caught.value)
    assert ("USER:PASSWORD" if status.startswith(b"407") else "no_proxy=gpu-7.invalid") in str(caught.value.hint)


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"429 Too Many Requests"])
async def test_a_page_in_place_of_an_answer(status: bytes, behind: Callable[[str], None]) -> None:
    """A proxy's page to log in is named as such; what says enough by its status is left to the backend."""
    head = b"Content-Type: text/html\r\nLocation: /login\r\nContent-Length: 4\r\n\r\n<p/>"
    async with serving(saying(b"HTTP/1.1 %s\r\n" % status + head)) as proxy:
        behind(proxy)
        if status.startswith(b"200"):
            with pytest.raises(FatalBackendError, match=f"the proxy {proxy} answered 200 in place of gpu-7"):
                await ask("http://gpu-7.invalid:8000")
        else:
            assert await ask("http://gpu-7.invalid:8000") == b"<p/>"


async def test_a_proxy_gets_its_password_and_the_server_does_not(behind: Callable[[str], None]) -> None:
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + b"Content-Length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    behind(f"http://user:pass@127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert await ask("http://gpu-7.invalid:8000") == b"ok"
    server.close()
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in heads[0]
    assert b"\r\nAuthorization:" not in heads[0]


async def test_a_proxy_that_is_not_there_and_one_of_another_kind(behind: Callable[[str], None]) -> None:
    behind("http://127.0.0.1:9")
    with pytest.raises(ServerUnavailable, match=r"no server listens at the proxy http://127\.0\.0\.1:9") as caught:
        await ask("http://gpu-7.invalid:8000")
    assert "no_proxy=gpu-7.invalid" in str(caught.value.hint)
    behind("socks5://user:s3cretword@127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"http_proxy names cannot be used: socks5://127\.0\.0\.1:9"):
        await ask("http://gpu-7.invalid:8000")
