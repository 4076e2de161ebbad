"""Opening, model discovery, probing, and several servers of one model."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.builtin.openai.backend import OpenAIBackend, OpenAIConfig
from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import (
    BackendError,
    FatalBackendError,
    GenerateRequest,
    ServerUnavailable,
    TransientBackendError,
)

from .openai_support import ask, chat, opened


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


async def cannot_open(kind: type[BackendError], *servers: MockServer, **options: Any) -> BackendError:
    """Open a backend that must fail, and return the error."""
    with pytest.raises(kind) as caught:
        async with opened(*servers, **options):
            pass
    return caught.value


async def test_the_first_listed_model_is_taken() -> None:
    with MockServer(models=("a/one", "a/two")) as server:
        async with opened(server) as backend:
            assert backend.model == "a/one"
            await backend.generate(ask())
        async with opened(server, model="a/two") as backend:
            await backend.generate(ask())
    assert [request.json["model"] for request in server.generations] == ["a/one", "a/two"]


async def test_an_unknown_model_is_refused_at_open_with_a_suggestion() -> None:
    with MockServer(models=("Qwen/Qwen3-8B", "other")) as server:
        error = await cannot_open(FatalBackendError, server, model="Qwen3-8B")
    assert "it has: Qwen/Qwen3-8B, other" in error.message
    assert error.hint == "--model Qwen/Qwen3-8B"
    assert server.generations == []


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "/models", "status": 404, "json": {"detail": "Not Found"}},
        {"path": "/models", "status": 405, "json": {}},
        {"path": "/models", "status": 500, "json": {}},
        {"path": "/models", "text": "<html>hello</html>"},
        {"path": "/models", "json": {"models": ["weird"]}},
        {"path": "/models", "json": {"data": []}},
        {"path": "/models", "json": {"data": [{"name": "no id"}]}},
        {"path": "/models", "json": [1]},
    ],
)
async def test_a_list_of_models_that_is_no_use(entry: dict[str, Any]) -> None:
    with MockServer([entry]) as server:
        async with opened(server, model="mock-model") as backend:
            assert (await backend.generate(ask())).completions[0].message.content == "ok"
        with pytest.raises(FatalBackendError, match="does not say which models") as caught:
            async with opened(server):
                pass
    assert caught.value.hint == "--model NAME"


async def test_opening_before_the_server_listens() -> None:
    server = MockServer(port=free_port())
    backend = OpenAIBackend(OpenAIConfig(base_url=(server.base_url,)))
    with pytest.raises(ServerUnavailable, match="no server listens at") as caught:
        await backend.open()
    assert caught.value.address == f"127.0.0.1:{server.port}"
    assert await backend.probe() is False
    with server:
        assert await backend.probe() is True
        await backend.open()
        assert (await backend.generate(ask())).completions[0].message.content == "ok"
    await backend.close()


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "/models", "status": 503, "json": {"error": "loading"}},
        {"path": "/models", "action": "close_before_response"},
        {"path": "/models", "action": "cut_body", "json": {}},
    ],
)
async def test_a_server_that_is_still_starting_is_unavailable(entry: dict[str, Any]) -> None:
    with MockServer([entry]) as server:
        await cannot_open(ServerUnavailable, server)


async def test_a_refused_key_at_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "wrong")
    with MockServer(api_key="right") as server:
        with pytest.raises(FatalBackendError) as caught:
            async with opened(server, api_key_env="MY_KEY"):
                pass
        assert "MY_KEY" in str(caught.value.hint)
        monkeypatch.setenv("MY_KEY", "right")
        async with opened(server, api_key_env="MY_KEY") as backend:
            await backend.generate(ask())
        monkeypatch.delenv("MY_KEY")
        with pytest.raises(ConfigError, match="MY_KEY is not set"):
            async with opened(server, api_key_env="MY_KEY"):
                pass


async def test_the_openai_key_goes_to_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-private")
    with MockServer() as server:
        async with opened(server) as backend:
            await backend.generate(ask())
    assert all("authorization" not in request.headers for request in server.requests)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY is not set"):
        await OpenAIBackend(OpenAIConfig(base_url=("https://api.openai.com/v1",))).open()


@pytest.mark.parametrize(
    ("script", "alive"),
    [
        ([], True),
        ([{"path": "/health", "status": 404, "json": {}}], True),
        (
            [
                {"path": "/health", "status": 404, "json": {}},
                {"path": "/models", "status": 401, "json": {}, "times": -1},
            ],
            True,
        ),
        ([{"path": "/health", "status": 503, "json": {}}], False),
        ([{"path": "/health", "status": 500, "json": {}}], False),
        ([{"path": "/health", "action": "close_before_response"}], False),
        (
            [
                {"path": "/health", "status": 404, "json": {}},
                {"path": "/models", "status": 502, "json": {}, "times": -1},
            ],
            False,
        ),
    ],
)
async def test_probe(script: list[dict[str, Any]], alive: bool) -> None:
    with MockServer() as server:
        async with opened(server) as backend:
            server.script(script)
            assert await backend.probe() is alive
            assert server.generations == []


async def test_probing_sglang_never_makes_it_generate() -> None:
    with MockServer(flavor="sglang") as server:
        async with opened(server) as backend:
            assert await backend.probe() is True
    assert "/health" not in [request.path for request in server.requests]


async def test_a_server_that_dies_and_comes_back() -> None:
    server = MockServer().start()
    async with opened(server) as backend:
        await backend.generate(ask())
        server.stop()
        for _ in range(2):
            with pytest.raises(ServerUnavailable, match=f"no server listens at 127.0.0.1:{server.port}"):
                await backend.generate(ask())
        assert await backend.probe() is False
        server.start()
        assert await backend.probe() is True
        await backend.generate(ask())
    server.stop()


async def test_idle_connections_that_the_server_closed_cost_nothing() -> None:
    with MockServer() as server:
        async with opened(server) as backend:
            for _ in range(5):
                replies = await asyncio.gather(*(backend.generate(ask()) for _ in range(3)))
                assert len(replies) == 3
                server.drop_idle()
        assert len(server.generations) == 15


# --- several servers


async def test_requests_are_spread_by_load() -> None:
    with MockServer(delay=0.05) as one, MockServer(delay=0.05) as two, MockServer(delay=0.05) as three:
        async with opened(one, two, three) as backend:
            await asyncio.gather(*(backend.generate(ask(logprobs="off")) for _ in range(12)))
    assert [len(server.generations) for server in (one, two, three)] == [4, 4, 4]
    assert [server.max_in_flight for server in (one, two, three)] == [4, 4, 4]


async def test_a_slow_server_gets_less() -> None:
    with MockServer(delay=0.3) as slow, MockServer(delay=0.01) as fast:
        async with opened(slow, fast) as backend:

            async def worker(left: list[int]) -> None:
                while left:
                    left.pop()
                    await backend.generate(ask(logprobs="off"))

            left = list(range(24))
            await asyncio.gather(*(worker(left) for _ in range(4)))
    assert len(fast.generations) > 2 * len(slow.generations)


async def test_work_goes_on_when_one_server_dies_and_it_is_used_again_later(caplog: pytest.LogCaptureFixture) -> None:
    one, two = MockServer().start(), MockServer().start()
    async with opened(one, two) as backend:
        await backend.generate(ask())
        one.stop()
        for _ in range(6):
            await backend.generate(ask())
        assert backend.describe()["counts"]["failovers"] == 1
        assert len(two.generations) >= 6
        one.start()
        before = len(one.generations)
        deadline = time.monotonic() + 10
        while len(one.generations) == before and time.monotonic() < deadline:
            await asyncio.gather(*(backend.generate(ask()) for _ in range(2)))
            await asyncio.sleep(0.05)
        assert len(one.generations) > before
        two.stop()
        await backend.generate(ask())
        one.stop()
        with pytest.raises(ServerUnavailable, match="no server listens"):
            await backend.generate(ask())
        assert await backend.probe() is False
    messages = [record.getMessage() for record in caplog.records]
    assert sum("is set aside" in message for message in messages) == 3
    assert sum("is back" in message for message in messages) == 1


async def test_a_paused_server_is_set_aside_for_as_long_as_it_asks() -> None:
    paused = {"status": 503, "json": {"error": {"code": "paused"}}, "headers": {"Retry-After": "60"}, "times": -1}
    with MockServer([paused]) as one, MockServer() as two:
        async with opened(one, two) as backend:
            for _ in range(5):
                await backend.generate(ask())
    assert len(one.generations) == 1
    assert len(two.generations) == 5


async def test_other_errors_do_not_move_on() -> None:
    with MockServer([{"status": 500, "json": {}}]) as one, MockServer([{"status": 500, "json": {}}]) as two:
        async with opened(one, two) as backend:
            with pytest.raises(TransientBackendError):
                await backend.generate(ask())
    assert len(one.generations) + len(two.generations) == 1


async def test_a_server_missing_at_open_is_used_when_it_comes() -> None:
    late = MockServer(port=free_port())
    with MockServer() as server:
        async with opened(late, server) as backend:
            assert backend.model == "mock-model"
            await backend.generate(ask())
            with late:
                assert await backend.probe() is True
                await asyncio.gather(*(backend.generate(ask()) for _ in range(4)))
    assert len(late.generations) > 0


async def test_all_servers_must_have_the_model() -> None:
    with MockServer(models=("a",)) as one, MockServer(models=("b",)) as two:
        error = await cannot_open(FatalBackendError, one, two)
    assert f"127.0.0.1:{two.port} has no model 'a'" in error.message


# --- options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://gpu:8000", ("http://gpu:8000/v1",)),
        ("gpu:8000", ("http://gpu:8000/v1",)),
        ("http://gpu:8000/", ("http://gpu:8000/v1",)),
        ("http://gpu:8000/v1/", ("http://gpu:8000/v1",)),
        ("http://gpu:8000/v1/chat/completions", ("http://gpu:8000/v1",)),
        ("https://host/api/v1", ("https://host/api/v1",)),
        ("http://a:1, http://b:2", ("http://a:1/v1", "http://b:2/v1")),
        (["http://a:1", "http://b:2/x"], ("http://a:1/v1", "http://b:2/x")),
        ("http://[::1]:8000", ("http://[::1]:8000/v1",)),
    ],
)
def test_base_urls(given: Any, expected: tuple[str, ...]) -> None:
    config = OpenAIConfig(base_url=given)
    assert config.base_url == expected
    assert OpenAIConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "http://", "http://x:99999", "http://x:0", "http://x\x01/v1", "http://[::1"],
)
def test_bad_base_urls(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        OpenAIConfig(base_url=url)


def test_a_query_has_no_place_in_a_base_url() -> None:
    with pytest.raises(ValueError, match="must not have a query"):
        OpenAIConfig(base_url="http://x/v1?key=1")


def test_credentials_do_not_belong_into_options() -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAIConfig(base_url="http://kim:secret@gpu:8000/v1")
    assert "secret" not in caught.value.message + str(caught.value.hint)
    with pytest.raises(ConfigError) as caught:
        OpenAIConfig(headers={"X-Api-Key": "secret"})
    assert "secret" not in caught.value.message.replace("holds a secret", "")
    for bad in ({"A\r\nB": "x"}, {"A": "x\r\nB: y"}, {"A b": "x"}, {"A": "Ā"}):
        with pytest.raises(ValueError, match="not a valid HTTP header"):
            OpenAIConfig(headers=bad)
    with pytest.raises(ValueError, match="set by the HTTP client"):
        OpenAIConfig(headers={"Content-Length": "0"})
    for name in ("stream", "n"):
        with pytest.raises(ValueError, match=name):
            OpenAIConfig(extra_body={name: 1})


async def test_headers_with_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "s3cret")
    with MockServer() as server:
        async with opened(server, headers={"Authorization": "Basic ${TEAM_KEY}", "X-Title": "rl"}) as backend:
            await backend.generate(ask())
            assert "s3cret" not in str(backend.describe()) + backend.config.model_dump_json()
        monkeypatch.delenv("TEAM_KEY")
        with pytest.raises(ConfigError, match="TEAM_KEY"):
            async with opened(server, headers={"Authorization": "Basic ${TEAM_KEY}"}):
                pass
    assert server.generations[0].headers["authorization"] == "Basic s3cret"
    assert server.generations[0].headers["x-title"] == "rl"


async def test_a_base_path_is_kept() -> None:
    with MockServer() as server:
        backend = OpenAIBackend(OpenAIConfig(base_url=(f"{server.root}/proxy/v1",)))
        await backend.open()
        await backend.generate(GenerateRequest(messages=ask().messages))
        await backend.probe()
        await backend.close()
    assert {request.path for request in server.requests} == {
        "/proxy/v1/models",
        "/proxy/v1/chat/completions",
        "/proxy/health",
    }


async def test_chat_entries_are_answers() -> None:
    """The helper of these tests builds what the mock would send itself."""
    with MockServer([chat("a", "b")]) as server:
        async with opened(server) as backend:
            assert len((await backend.generate(ask(n=2))).completions) == 2
