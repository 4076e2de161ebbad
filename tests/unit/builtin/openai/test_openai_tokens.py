"""Token ids and logprobs: the server's own, or none; found out by the first request."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.sdk import Rollout, TokenSpan, assistant, token_sequences, user
from atropos_cli.sdk.backends import FatalBackendError, TransientBackendError
from atropos_cli.text.bytetokens import encode_prompt, encode_reply, token_logprobs

from .openai_support import ask, chat, field_case, opened


def choice(content: str = "ab", **fields: Any) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop", **fields}


def chat_logprobs(*values: Any, **fields: Any) -> dict[str, Any]:
    return {"content": [{"token": "x", "logprob": value, **fields} for value in values]}


@pytest.mark.parametrize("flavor", ["vllm", "sglang"])
@pytest.mark.parametrize("endpoint", ["chat", "completions"])
async def test_the_ids_are_the_servers(flavor: Any, endpoint: Any) -> None:
    with MockServer(flavor=flavor, reply=lambda body, index: f"reply {index}") as server:
        async with opened(server, endpoint=endpoint) as backend:
            generation = await backend.generate(ask(n=3))
            assert backend.capabilities.logprobs is True
            assert backend.capabilities.token_ids is True
    for index, completion in enumerate(generation.completions):
        ids = encode_reply(f"reply {index}")
        assert completion.message.tokens == TokenSpan(ids=ids, mask=True, logprobs=token_logprobs(ids))
        assert completion.completion_tokens == len(ids)
    expected = encode_prompt([("user", "What is 6*7?")]) if endpoint == "chat" else tuple(b"What is 6*7?")
    assert generation.prompt_ids == expected
    assert generation.prompt_tokens == len(expected)


async def test_a_conversation_extends_its_tokens() -> None:
    """The property that multi-turn training rests on, with the mock's tokenizer: each prompt extends the last reply."""
    with MockServer(flavor="vllm", reply="go") as server:
        async with opened(server) as backend:
            first = await backend.generate(ask("one"))
            reply = first.completions[0].message
            second = await backend.generate(ask().replace(messages=(user("one"), reply, user("two"))))
    assert first.prompt_ids is not None
    assert reply.tokens is not None
    assert second.prompt_ids is not None
    seen = first.prompt_ids + reply.tokens.ids
    assert second.prompt_ids[: len(seen)] == seen


async def test_ids_that_no_encoder_would_give_are_kept() -> None:
    """The server sampled [a, b] where an encoder of the text would give [ab]."""
    entry = chat(choice("ab", token_ids=[1, 2], logprobs=chat_logprobs(-0.5, -0.25)), prompt_token_ids=[9])
    with MockServer([entry]) as server:
        async with opened(server) as backend:
            generation = await backend.generate(ask())
    message = generation.completions[0].message
    assert message.tokens == TokenSpan(ids=(1, 2), mask=True, logprobs=(-0.5, -0.25))
    assert generation.prompt_ids == (9,)
    prompt = user("x").replace(tokens=TokenSpan(ids=(9,)))
    (sequence,) = token_sequences(Rollout(id="r", task_id="t", messages=(prompt, message)))
    assert sequence.ids == (9, 1, 2)
    assert sequence.mask == (False, True, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": {"content": [{"token": "token_id:5", "logprob": -1.0}, {"token": "token_id:6", "logprob": -2.0}]}},
        {"logprobs": {"content": [{"token": "a", "id": 5, "logprob": -1.0}, {"token": "b", "id": 6, "logprob": -2.0}]}},
        {"response_token_ids": [5, 6], "logprobs": chat_logprobs(-1.0, -2.0)},
    ],
)
async def test_other_places_of_the_ids(fields: dict[str, Any]) -> None:
    with MockServer([chat(choice(**fields))]) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask())).completions
    assert completion.message.tokens == TokenSpan(ids=(5, 6), mask=True, logprobs=(-1.0, -2.0))


@pytest.mark.parametrize(
    "logprobs",
    [
        chat_logprobs(-1.0),
        chat_logprobs(-1.0, -2.0, -3.0),
        chat_logprobs(-1.0, None),
        chat_logprobs(float("-inf"), -1.0),
        chat_logprobs(-1.0, float("nan")),
        chat_logprobs(float("nan"), -1.0),
        chat_logprobs(-9999.0, -1.0),
        chat_logprobs(0.5, -1.0),
        chat_logprobs("-1", "-2"),
    ],
)
async def test_logprobs_that_cannot_be_right_are_left_out_and_counted(
    logprobs: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with MockServer([chat(choice(token_ids=[1, 2], logprobs=logprobs))]) as server:
        async with opened(server) as backend:
            for _ in range(2):
                (completion,) = (await backend.generate(ask())).completions
                assert completion.message.tokens == TokenSpan(ids=(1, 2), mask=True, logprobs=None)
            assert backend.describe()["counts"]["bad_logprobs"] == 2
            with pytest.raises(TransientBackendError, match="do not fit"):
                await backend.generate(ask(logprobs="require"))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("ids", [["a", "b"], [1.5, 2], "12", {"a": 1}])
async def test_ids_that_are_not_ids(ids: Any) -> None:
    with MockServer([chat(choice(token_ids=ids, logprobs=chat_logprobs(-1.0, -2.0)))]) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask())).completions
            assert completion.message.tokens is None
            assert backend.describe()["counts"]["bad_token_ids"] == 1


async def test_an_empty_completion_has_an_empty_span() -> None:
    with MockServer([chat(choice("", token_ids=[], logprobs=None))]) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask(logprobs="require"))).completions
    assert completion.message.tokens == TokenSpan(ids=(), mask=True, logprobs=())
    assert completion.completion_tokens == 0


async def test_missing_logprobs_that_are_optional(caplog: pytest.LogCaptureFixture) -> None:
    with MockServer(field_case("B18")) as server:
        async with opened(server) as backend:
            for _ in range(3):
                (completion,) = (await backend.generate(ask())).completions
                assert completion.message.content == "ok"
                assert completion.message.tokens is None
            assert backend.capabilities.logprobs is False
            assert backend.describe()["counts"]["null_logprobs"] == 3
    about = [record for record in caplog.records if "choices[].logprobs" in record.getMessage()]
    assert len(about) == 1
    assert about[0].levelno == logging.WARNING
    assert about[0].name == "atropos.backend"


async def test_missing_logprobs_that_are_required() -> None:
    with MockServer(field_case("B18")) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match=r"choices\[\]\.logprobs is missing") as caught:
                await backend.generate(ask(logprobs="require"))
    assert "top_logprobs" in str(caught.value.hint)
    assert len(server.generations) == 1


async def test_logprobs_without_ids_are_not_enough_when_required() -> None:
    with MockServer([chat(choice(logprobs=chat_logprobs(-1.0, -2.0)))]) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match=r"choices\[\]\.token_ids is missing") as caught:
                await backend.generate(ask(logprobs="require"))
            assert backend.capabilities.logprobs is True
            assert backend.capabilities.token_ids is False
    assert "return_token_ids" in str(caught.value.hint)


async def test_off_asks_for_nothing() -> None:
    with MockServer(flavor="vllm") as server:
        async with opened(server) as backend:
            generation = await backend.generate(ask(logprobs="off"))
            assert backend.describe()["request_fields"] == ["max_tokens"]
    assert not {"logprobs", "return_token_ids"} & set(server.generations[0].json)
    assert generation.completions[0].message.tokens is None
    assert generation.prompt_ids is None


async def test_refused_fields_are_dropped_one_by_one_within_the_first_attempt() -> None:
    with MockServer(flavor="strict", reply="42") as server:
        async with opened(server) as backend:
            results = await asyncio.gather(*(backend.generate(ask()) for _ in range(8)))
            described = backend.describe()
            assert backend.capabilities.logprobs is False
    assert all(result.completions[0].message.content == "42" for result in results)
    tried = [("return_token_ids" in r.json, "logprobs" in r.json) for r in server.generations]
    assert tried == [(True, True), (False, True), *[(False, False)] * 8]
    assert set(described["dropped_fields"]) == {"return_token_ids", "logprobs"}
    assert described["request_fields"] == ["max_tokens"]


async def test_refused_logprobs_that_are_required_stop_the_run_with_the_servers_words() -> None:
    with MockServer(flavor="strict") as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="logprobs are required") as caught:
                await backend.generate(ask(logprobs="require"))
    assert "Unrecognized request argument supplied: logprobs" in str(caught.value.hint)


async def test_the_first_request_goes_alone_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_cli.builtin.openai.backend._HEAD_START", 0.2)
    with MockServer(flavor="vllm", delay=1.0) as server:
        async with opened(server) as backend:
            begin = time.monotonic()
            tasks = [asyncio.create_task(backend.generate(ask())) for _ in range(4)]
            await asyncio.sleep(0.1)
            assert len(server.generations) == 1
            await asyncio.gather(*tasks)
            assert time.monotonic() - begin < 1.9
    times = [request.time for request in server.generations]
    assert times[1] - times[0] >= 0.15


async def test_a_first_request_that_fails_lets_the_others_go() -> None:
    with MockServer([{"status": 500, "json": {}}, chat("ok")]) as server:
        async with opened(server) as backend:
            results = await asyncio.gather(*(backend.generate(ask()) for _ in range(3)), return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["TransientBackendError", "Generation", "Generation"]


async def test_the_answer_survives_as_json() -> None:
    with MockServer(flavor="vllm", reply="é") as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask())).completions
    again = json.loads(completion.message.model_dump_json())
    assert again["tokens"]["ids"] == [0xC3, 0xA9, 256]
    assert again["tokens"]["mask"] is True


async def test_earlier_tokens_are_not_sent() -> None:
    reply = assistant("go").replace(tokens=TokenSpan(ids=(1,), mask=True), finish_reason="stop")
    with MockServer() as server:
        async with opened(server) as backend:
            await backend.generate(ask().replace(messages=(user("a"), reply, user("b"))))
    assert server.generations[0].json["messages"][1] == {"role": "assistant", "content": "go"}
