"""The real litellm against a stand-in provider: requests, answers, errors, prices, and what leaves the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_litellm.backend import LitellmBackend, LitellmConfig
from atropos_litellm.errors import _said
from litellm_support import CALL, Provider

from atropos_cli.sdk import ConfigError, system, user
from atropos_cli.sdk.backends import (
    BackendError,
    ContextOverflow,
    FatalBackendError,
    GenerateRequest,
    RateLimited,
    RequestRejected,
    Sampling,
    ServerUnavailable,
    TransientBackendError,
)

pytest.importorskip("litellm")

TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}
OPENAI, ANTHROPIC = "openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


async def opened(provider: Provider, model: str, **options: Any) -> LitellmBackend:
    url = provider.url + ("/v1" if model == OPENAI else "")
    backend = LitellmBackend(LitellmConfig(base_url=url, **options), model=model)
    await backend.open(request_timeout=20)
    return backend


def ask(**changes: Any) -> GenerateRequest:
    sampling = Sampling(max_tokens=7, top_k=3, min_p=0.1)
    return GenerateRequest(messages=(system("be short"), user("hi")), sampling=sampling, seed=4, **changes)


async def test_what_is_asked_and_what_comes_back(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    backend = await opened(provider, OPENAI)
    got = await backend.generate(ask(n=3))
    body = provider.requests[-1][2]
    assert (body["n"], body["seed"], body["max_tokens"], body["model"]) == (3, 4, 7, "gpt-4o-mini")
    assert "top_k" not in body
    assert [one.message.text for one in got.completions] == ["hello"] * 3
    assert got.usage is not None
    assert got.usage.model_dump(exclude={"cost"}) == {
        "prompt_tokens": 100, "completion_tokens": 30, "cached_tokens": 40, "reasoning_tokens": 6
    }  # fmt: skip
    price = backend.price()
    assert price is not None
    assert got.usage.cost == pytest.approx(price.of(got.usage))
    await backend.generate(ask())
    assert caplog.text.count("does not take top_k") == 1
    assert backend.describe()["dropped_fields"] == {"top_k": 2, "min_p": 2}
    await backend.close()


async def test_anthropics_own_format(provider: Provider) -> None:
    backend = await opened(provider, ANTHROPIC)
    assert backend.capabilities.n is False
    got = await backend.generate(ask(n=3))
    path, _, body = provider.requests[-1]
    assert path == "/v1/messages"
    assert (body["top_k"], body["max_tokens"], body["system"][0]["text"]) == (3, 7, "be short")
    assert "seed" not in body
    (reply,) = got.completions
    assert (reply.message.text, reply.finish_reason, reply.completion_tokens) == ("bonjour", "length", 5)
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.cached_tokens) == (100, 40)
    assert got.usage.cost == pytest.approx((60 * 3 + 40 * 0.3 + 5 * 15) / 1e6)
    await backend.close()


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
async def test_tools_are_passed_through(provider: Provider, model: str) -> None:
    provider.tool_call = True
    backend = await opened(provider, model)
    (reply,) = (await backend.generate(ask(tools=(TOOL,)))).completions
    assert "look" in str(provider.requests[-1][2]["tools"])
    assert reply.message.tool_calls is not None
    assert reply.message.tool_calls[0].function.model_dump() == CALL
    assert reply.finish_reason == "tool_calls"
    again = GenerateRequest(messages=(user("hi"), reply.message, user("seen").replace(role="tool", tool_call_id="c1")))
    provider.tool_call = False
    assert (await backend.generate(again)).completions[0].message.text in ("hello", "bonjour")
    await backend.close()


ERRORS = [
    (429, {"message": "slow down"}, RateLimited, False),
    (429, {"message": "no", "code": "insufficient_quota", "type": "insufficient_quota"}, FatalBackendError, False),
    (401, {"message": "bad key"}, FatalBackendError, False),
    (404, {"message": "no such model", "type": "not_found_error"}, FatalBackendError, False),
    (400, {"message": "prompt is too long: 20 > 10"}, ContextOverflow, False),
    (400, {"message": "maximum context length is 10 tokens"}, ContextOverflow, False),
    (400, {"message": "odd"}, RequestRejected, False),
    (422, {"message": "odd"}, RequestRejected, False),
    (500, {"message": "boom"}, TransientBackendError, False),
    (503, {"message": "away"}, ServerUnavailable, False),
    (529, {"message": "Overloaded", "type": "overloaded_error"}, RateLimited, False),
]


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
async def test_errors_are_sorted(provider: Provider, model: str) -> None:
    backend = await opened(provider, model)
    for status, words, wanted, billed in ERRORS:
        provider.failure = (status, {"error": words}, {"retry-after": "3"})
        before = len(provider.requests)
        with pytest.raises(BackendError) as caught:
            await backend.generate(ask())
        assert (type(caught.value), caught.value.billed) == (wanted, billed), (status, words)
        assert str(words["message"]) in str(caught.value)
        assert "litellm." not in str(caught.value)
        assert len(provider.requests) == before + 1, "litellm's own retries are off"
        if wanted is RateLimited:
            assert getattr(caught.value, "retry_after", None) == 3.0
    await backend.close()


async def test_nobody_listens() -> None:
    backend = LitellmBackend(LitellmConfig(base_url="http://127.0.0.1:9/v1"), model=OPENAI)
    await backend.open()
    with pytest.raises(ServerUnavailable):
        await backend.generate(ask())


async def test_replies_are_kept_by_the_address_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:1/v1")
    first = await LitellmBackend(LitellmConfig(), model=OPENAI).identity()
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:2/v1")
    assert await LitellmBackend(LitellmConfig(), model=OPENAI).identity() != first
    given = LitellmConfig(base_url="http://127.0.0.1:1/v1")
    assert await LitellmBackend(given, model=OPENAI).identity() != first


def test_errors_say_nothing_of_objects_in_memory() -> None:
    said = "AnthropicException - Cannot connect to host x:443 ssl:<ssl.SSLContext object at 0x7fd5> [unknown]"
    assert _said(Exception(said), "m") == "m: AnthropicException - Cannot connect to host x:443 [unknown]"


async def test_keys_and_names(monkeypatch: pytest.MonkeyPatch, provider: Provider) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        await LitellmBackend(LitellmConfig(), model=ANTHROPIC).open()
    with pytest.raises(FatalBackendError, match="no provider"):
        await LitellmBackend(LitellmConfig(), model="no-such-thing").open()
    monkeypatch.setenv("MY_KEY", "sk-my-own-key-1234")
    backend = await opened(provider, ANTHROPIC, api_key_env="MY_KEY")
    provider.failure = (400, {"error": {"message": "what is sk-my-own-key-1234"}}, {})
    with pytest.raises(RequestRejected) as caught:
        await backend.generate(ask())
    assert provider.requests[-1][1]["x-api-key"] == "sk-my-own-key-1234"
    assert "sk-my-own-key" not in str(caught.value)
    for extra in ({"api_key": "x"}, {"aws_secret_access_key": "x"}, {"n": 2}):
        with pytest.raises(ValueError, match=r"set by atropos|secret"):
            LitellmConfig(extra=extra)
    with pytest.raises(FatalBackendError, match="token ids"):
        await backend.generate(ask(logprobs="require"))


GUARD = """
import sys
def watch(event, args):
    if event == "socket.connect" and args[1][0] != "127.0.0.1" or event == "socket.getaddrinfo" and args[0] not in (
            "127.0.0.1", b"127.0.0.1"):
        sys.stderr.write(f"LEFT THE MACHINE: {event} {args[1:]}\\n")
sys.addaudithook(watch)
from atropos_cli.cli.app import main
code = main()
assert "litellm" in sys.modules
raise SystemExit(code)
"""
ENVIRONMENT = """
from atropos_cli.sdk import Environment, Task, reward, user

@reward
def bon(task, rollout):
    return float("bon" in rollout.text)

class Tasks(Environment):
    name = "tasks"
    rewards = (bon,)
    def tasks(self, split):
        return [Task(id=str(i), prompt=(user(f"question {i}"),)) for i in range(4)]
"""


def test_a_run_with_litellms_prices_keeps_to_the_machine(tmp_path: Path, provider: Provider) -> None:
    (tmp_path / "tasks.py").write_text(ENVIRONMENT)
    (tmp_path / ".env").write_text("ANTHROPIC_API_KEY=from-a-file\n")
    args = ["gen", "tasks.py:Tasks", "--backend", "litellm", "--model", ANTHROPIC, "--base-url", provider.url]
    args += ["--group-size", "2", "--max-tokens", "20", "--max-cost", "1", "-o", "run"]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ATROPOS_", "ANTHROPIC"))}
    env |= {"HOME": str(tmp_path), "ATROPOS_DOTENV": "0"}  # litellm must not read the file by itself
    command = [sys.executable, "-c", GUARD, *args]
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "LEFT THE MACHINE" not in ran.stderr
    assert "Traceback" not in ran.stderr
    assert f"cost: {8 * 0.000267:.6f} of 1.00 USD" in ran.stderr
    assert {request[1]["x-api-key"] for request in provider.requests} == {"none"}


def test_litellm_is_imported_only_when_used() -> None:
    code = "import sys, atropos_litellm.backend; sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
