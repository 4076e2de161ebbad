"""score(): log-probabilities of given tokens, by whichever way the server offers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.sdk.backends import ContextOverflow, FatalBackendError, RequestRejected, TransientBackendError
from atropos_cli.text.bytetokens import token_logprobs

from .openai_support import opened

PREFIX, CONTINUATION = [10, 20, 30], [40, 50]


@pytest.mark.parametrize(("flavor", "path"), [("vllm", "/v1/completions"), ("sglang", "/generate")])
async def test_values_belong_to_the_continuation(flavor: Any, path: str) -> None:
    with MockServer(flavor=flavor) as server:
        async with opened(server) as backend:
            values = await backend.score(PREFIX, CONTINUATION)
            assert tuple(values) == token_logprobs(CONTINUATION)
            assert tuple(await backend.score((1,), (2, 3, 4))) == token_logprobs((2, 3, 4))
            assert list(await backend.score(PREFIX, ())) == []
            assert backend.capabilities.prompt_logprobs is True
            assert backend.describe()["prompt_scoring"] in ("prompt_logprobs", "native")
            assert backend.describe()["counts"] == {"score_requests": 2}
    assert [request.path for request in server.generations] == [path, path]


async def test_the_requests() -> None:
    with MockServer(flavor="vllm") as vllm, MockServer(flavor="sglang") as sglang:
        async with opened(vllm) as backend:
            await backend.score(PREFIX, CONTINUATION)
        async with opened(sglang) as backend:
            await backend.score(PREFIX, CONTINUATION)
    assert vllm.generations[0].json == {
        "model": "mock-model",
        "prompt": [10, 20, 30, 40, 50],
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 0,
    }
    assert sglang.generations[0].json == {
        "input_ids": [10, 20, 30, 40, 50],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": 2,
    }


async def test_echo_is_the_second_choice_and_the_way_is_remembered() -> None:
    def answer(request: Any) -> dict[str, Any]:
        body = request.json
        if "prompt_logprobs" in body:
            return {"status": 400, "json": {"error": {"message": "Unrecognized request argument: prompt_logprobs"}}}
        assert body["echo"] is True
        values = [None, *token_logprobs(body["prompt"][1:]), -7.0]
        return {"json": {"choices": [{"text": "", "logprobs": {"token_logprobs": values}, "finish_reason": "length"}]}}

    with MockServer(handler=answer) as server:
        async with opened(server) as backend:
            results = await asyncio.gather(*(backend.score(PREFIX, CONTINUATION) for _ in range(4)))
            assert backend.describe()["prompt_scoring"] == "echo"
    assert all(tuple(values) == token_logprobs(CONTINUATION) for values in results)
    assert ["echo" in request.json for request in server.generations] == [False, True, True, True, True]


@pytest.mark.parametrize("flavor", ["openai", "strict"])
async def test_a_server_that_cannot(flavor: Any) -> None:
    with MockServer(flavor=flavor) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="no log-probabilities of given tokens") as caught:
                await backend.score(PREFIX, CONTINUATION)
            assert backend.capabilities.prompt_logprobs is False
    assert "vLLM or SGLang" in str(caught.value.hint)


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), None, "x", -9999.0])
async def test_values_that_are_not_finite_are_never_returned(value: Any) -> None:
    entries = [None, *[{str(token): {"logprob": -1.0}} for token in (20, 30, 40)], {"50": {"logprob": value}}]
    with MockServer([{"json": {"choices": [{"prompt_logprobs": entries}]}}], flavor="vllm") as server:
        async with opened(server) as backend:
            with pytest.raises(RequestRejected, match="no finite log-probability for token 50"):
                await backend.score(PREFIX, CONTINUATION)


async def test_scores_of_other_tokens_are_refused() -> None:
    meta = {"meta_info": {"input_token_logprobs": [[None, 30, None], [-1.0, 40, None], [-1.0, 51, None]]}}
    with MockServer([{"json": meta}], flavor="sglang") as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="other tokens"):
                await backend.score(PREFIX, CONTINUATION)


async def test_too_few_values_are_not_taken() -> None:
    meta = {"meta_info": {"input_token_logprobs": [[None, 30, None], [-1.0, 40, None]]}}
    with MockServer([{"json": meta}], flavor="sglang") as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="1 values for 2 tokens"):
                await backend.score(PREFIX, CONTINUATION)


async def test_errors_are_told_apart_here_too() -> None:
    script = [
        {"status": 500, "json": {}},
        {"status": 400, "json": {"error": {"message": "This model's maximum context length is 4 tokens."}}},
        {"text": "<html>"},
    ]
    with MockServer(script, flavor="vllm") as server:
        async with opened(server) as backend:
            with pytest.raises(TransientBackendError):
                await backend.score(PREFIX, CONTINUATION)
            with pytest.raises(ContextOverflow):
                await backend.score(PREFIX, CONTINUATION)
            with pytest.raises(TransientBackendError, match="not JSON"):
                await backend.score(PREFIX, CONTINUATION)
            with pytest.raises(RequestRejected, match="needs a prefix"):
                await backend.score((), CONTINUATION)
            assert backend.capabilities.prompt_logprobs is None
