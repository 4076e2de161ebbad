"""The scripted backend: replies from lists and functions, with the stated token rule."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.builtin.scripted import ScriptedBackend, ScriptedConfig
from atropos_cli.sdk import ConfigError, FunctionCall, Message, TokenSpan, ToolCall, assistant, system, user
from atropos_cli.sdk.backends import (
    Completion,
    ContextOverflow,
    FatalBackendError,
    GenerateRequest,
    Generation,
    RateLimited,
    RequestRejected,
)
from atropos_cli.text.bytetokens import END, ROLE_IDS, encode_prompt, encode_reply, token_logprobs


def texts(generation: Generation) -> list[str]:
    return [completion.message.text for completion in generation.completions]


def ask(text: str = "q", **fields: Any) -> GenerateRequest:
    return GenerateRequest(messages=(user(text),), **fields)


async def scripted(**options: Any) -> ScriptedBackend:
    backend = ScriptedBackend(ScriptedConfig(**options))
    await backend.open()
    return backend


async def test_replies_in_turn() -> None:
    backend = await scripted(replies=("a", "b", "c"))
    assert backend.model == "scripted"
    assert texts(await backend.generate(ask(n=2))) == ["a", "b"]
    assert texts(await backend.generate(ask(n=2))) == ["c", "a"]
    (completion,) = (await backend.generate(ask())).completions
    assert completion == Completion(
        message=Message(role="assistant", content="b", finish_reason="stop"), finish_reason="stop"
    )
    assert backend.describe()["counts"] == {"n_requests": 3, "max_in_flight": 1}


async def test_once_runs_out() -> None:
    backend = await scripted(replies=("a", "b"), mode="once")
    assert texts(await backend.generate(ask())) == ["a"]
    with pytest.raises(RequestRejected, match="has 2 replies and 1 were given; 2 more were asked for"):
        await backend.generate(ask(n=2))
    assert texts(await backend.generate(ask())) == ["b"]
    with pytest.raises(RequestRejected):
        await backend.generate(ask())


async def test_random_depends_on_seed_and_prompt_and_not_on_order() -> None:
    replies = tuple(str(number) for number in range(100))
    one, two = await scripted(replies=replies, mode="random"), await scripted(replies=replies, mode="random")
    asked = [ask(f"q{number % 3}", seed=number, n=2) for number in range(9)]
    forward = [texts(await one.generate(request)) for request in asked]
    backward = [texts(await two.generate(request)) for request in reversed(asked)]
    assert forward == backward[::-1]
    assert len({tuple(pair) for pair in forward}) == 9


async def test_a_function_sees_the_conversation() -> None:
    def reply(messages: Sequence[Message], request: GenerateRequest) -> str:
        return f"{messages[-1].text} {len(messages)} {request.seed}"

    backend = ScriptedBackend.from_function(reply)
    await backend.open()
    request = GenerateRequest(messages=(system("s"), user("hello")), seed=5, n=2)
    assert texts(await backend.generate(request)) == ["hello 2 5", "hello 2 5"]


async def test_what_a_function_may_return() -> None:
    call = ToolCall(id="1", function=FunctionCall(name="look"))
    answers: list[Any] = [
        ["a", "b", "c"],
        Message(role="assistant", tool_calls=(call,)),
        Message(role="assistant", content="cut", finish_reason="length"),
        Completion(message=assistant("whole"), finish_reason=None, completion_tokens=9),
    ]
    backend = ScriptedBackend.from_function(lambda messages, request: answers.pop(0))
    assert texts(await backend.generate(ask(n=2))) == ["a", "b"]
    assert (await backend.generate(ask())).completions[0].finish_reason == "tool_calls"
    assert (await backend.generate(ask())).completions[0].finish_reason == "length"
    assert (await backend.generate(ask())).completions[0].completion_tokens == 9


async def test_async_functions_and_delay() -> None:
    async def reply(messages: Sequence[Message], request: GenerateRequest) -> str:
        await asyncio.sleep(0)
        return "later"

    backend = ScriptedBackend.from_function(reply, config=ScriptedConfig(delay_s=0.05))
    begin = time.monotonic()
    results = await asyncio.gather(*(backend.generate(ask()) for _ in range(5)))
    assert time.monotonic() - begin >= 0.05
    assert [texts(result) for result in results] == [["later"]] * 5
    assert backend.describe()["counts"] == {"n_requests": 5, "max_in_flight": 5}


@pytest.mark.parametrize(
    "error", [RateLimited("slow", retry_after=1.0), ContextOverflow("long"), RequestRejected("no")]
)
async def test_errors_that_a_function_raises_on_purpose(error: Exception) -> None:
    def reply(messages: Sequence[Message], request: GenerateRequest) -> str:
        raise error

    with pytest.raises(type(error)) as caught:
        await ScriptedBackend.from_function(reply).generate(ask())
    assert caught.value is error


async def test_a_function_with_a_bug_stops_the_run() -> None:
    def reply(messages: Sequence[Message], request: GenerateRequest) -> str:
        return {}["missing"]  # type: ignore[no-any-return]

    with pytest.raises(FatalBackendError, match="KeyError: 'missing'"):
        await ScriptedBackend.from_function(reply).generate(ask())


@pytest.mark.parametrize("value", [None, 5, user("not mine")])
async def test_a_function_that_returns_something_else(value: Any) -> None:
    with pytest.raises(FatalBackendError, match="the scripted function returned"):
        await ScriptedBackend.from_function(lambda messages, request: value).generate(ask())


async def test_a_function_from_a_file_and_from_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scripted_player.py").write_text("def reply(messages, request):\n    return 'from a file'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for target in ("./scripted_player.py:reply", "scripted_player:reply"):
        backend = await scripted(function=target)
        assert texts(await backend.generate(ask())) == ["from a file"]
        assert backend.describe()["function"] == target


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("player", "not of the form"),
        ("./missing.py:reply", "no file"),
        ("no_such_module_here:reply", "ModuleNotFoundError"),
        ("json:no_such_name", "AttributeError"),
        ("json:__doc__", "not a function"),
    ],
)
async def test_functions_that_cannot_be_loaded(target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await scripted(function=target)


async def test_a_file_with_an_error_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1/0\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        await scripted(function=f"{path}:reply")


async def test_nothing_to_say() -> None:
    with pytest.raises(ConfigError, match="nothing to say"):
        await scripted()
    with pytest.raises(ValueError, match="not both"):
        ScriptedConfig(replies=("a",), function="m:f")


# --- tokens


def test_the_token_rule() -> None:
    assert encode_reply("aé") == (97, 0xC3, 0xA9, END)
    assert encode_prompt([("system", "a"), ("user", "b")]) == (
        ROLE_IDS["system"], 97, END, ROLE_IDS["user"], 98, END, ROLE_IDS["assistant"],
    )  # fmt: skip
    values = token_logprobs(range(300))
    assert all(-1.01 <= value <= -0.01 for value in values)
    assert len(set(values)) > 50


async def test_tokens_when_asked_for() -> None:
    backend = await scripted(replies=("go",), token_ids=True)
    assert backend.capabilities.token_ids is True
    assert backend.capabilities.logprobs is True
    generation = await backend.generate(ask("one", logprobs="require"))
    (completion,) = generation.completions
    ids = encode_reply("go")
    assert completion.message.tokens == TokenSpan(ids=ids, mask=True, logprobs=token_logprobs(ids))
    assert completion.completion_tokens == len(ids)
    assert generation.prompt_ids == encode_prompt([("user", "one")])
    assert tuple(await backend.score((1, 2), ids)) == token_logprobs(ids)
    off = await backend.generate(ask("one", logprobs="off"))
    assert off.completions[0].message.tokens is None
    assert off.prompt_ids is None


async def test_a_prompt_extends_the_conversation_so_far() -> None:
    backend = await scripted(replies=("go",), token_ids=True)
    first = await backend.generate(ask("one"))
    reply = first.completions[0].message
    assert reply.tokens is not None
    assert first.prompt_ids is not None
    second = await backend.generate(GenerateRequest(messages=(user("one"), reply, user("two"))))
    seen = first.prompt_ids + reply.tokens.ids
    assert second.prompt_ids is not None
    assert second.prompt_ids[: len(seen)] == seen


async def test_without_tokens_logprobs_cannot_be_required() -> None:
    backend = await scripted(replies=("go",))
    assert (await backend.generate(ask())).prompt_ids is None
    with pytest.raises(FatalBackendError, match="logprobs are required"):
        await backend.generate(ask(logprobs="require"))
    with pytest.raises(FatalBackendError, match="token_ids"):
        await backend.score((1,), (2,))
