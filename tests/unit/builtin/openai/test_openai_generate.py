"""generate(): one attempt, one outcome, for every way a server answers."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.sdk import FunctionCall, Message, ToolCall, assistant, system, user
from atropos_cli.sdk.backends import (
    BackendError,
    ContextOverflow,
    FatalBackendError,
    RateLimited,
    RequestRejected,
    Sampling,
    ServerUnavailable,
    TransientBackendError,
)

from .openai_support import ask, chat, field_case, opened

TOOL = {"type": "function", "function": {"name": "move", "parameters": {"type": "object"}}}


async def test_an_ordinary_answer() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    with MockServer([chat("42", usage=usage)]) as server:
        async with opened(server) as backend:
            generation = await backend.generate(ask())
    (completion,) = generation.completions
    assert completion.message.content == "42"
    assert completion.message.finish_reason == completion.finish_reason == "stop"
    assert completion.completion_tokens == 3
    assert generation.prompt_tokens == 5
    assert completion.message.tokens is None


async def test_the_request() -> None:
    messages = (
        system("Play."),
        Message(role="user", content=({"type": "text", "text": "look"},), name="kim"),
        Message(
            role="assistant",
            reasoning="hidden",
            finish_reason="tool_calls",
            tool_calls=(ToolCall(id="c1", function=FunctionCall(name="move", arguments='{"to":"north"}')),),
        ),
        Message(role="tool", content="a hall", tool_call_id="c1"),
        Message(role="assistant", content=None),
    )
    request = ask(
        n=4, seed=7, max_tokens=9, temperature=0.5, top_p=0.9, top_k=5, min_p=0.1, stop=("END",), tools=(TOOL,)
    ).replace(messages=messages)
    with MockServer(flavor="vllm") as server:
        async with opened(server, extra_body={"chat_template_kwargs": {"enable_thinking": False}}) as backend:
            await backend.generate(request)
    body = server.generations[0].json
    assert body["messages"] == [
        {"role": "system", "content": "Play."},
        {"role": "user", "content": [{"type": "text", "text": "look"}], "name": "kim"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "move", "arguments": '{"to":"north"}'}}
            ],
        },
        {"role": "tool", "content": "a hall", "tool_call_id": "c1"},
        {"role": "assistant", "content": ""},
    ]
    del body["messages"]
    assert body == {
        "model": "mock-model",
        "n": 4,
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "stop": ["END"],
        "seed": 7,
        "tools": [TOOL],
        "logprobs": True,
        "return_token_ids": True,
        "chat_template_kwargs": {"enable_thinking": False},
    }


async def test_what_is_not_set_is_not_sent() -> None:
    with MockServer() as server:
        async with opened(server) as backend:
            await backend.generate(ask(max_tokens=None, temperature=None, logprobs="off"))
    assert server.generations[0].json == {
        "model": "mock-model",
        "messages": [{"role": "user", "content": "What is 6*7?"}],
    }


async def test_reasoning_is_sent_back_only_when_asked_for() -> None:
    reply = Message(role="assistant", content="42", reasoning="6*7")
    request = ask().replace(messages=(user("q"), reply, user("sure?")))
    with MockServer() as server:
        async with opened(server, send_reasoning=True) as backend:
            await backend.generate(request)
    assert server.generations[0].json["messages"][1]["reasoning_content"] == "6*7"


async def test_text_that_is_not_utf8_can_be_sent() -> None:
    with MockServer() as server:
        async with opened(server) as backend:
            await backend.generate(ask("half a pair: \ud83d"))
    assert server.generations[0].json["messages"][0]["content"] == "half a pair: \ufffd"


# --- misbehaviour, each with its one outcome


@pytest.mark.parametrize(
    ("entry", "kind", "message"),
    [
        ({"status": 429, "json": {"error": {"message": "slow down"}}}, RateLimited, "slow down"),
        ({"status": 408, "json": {}}, TransientBackendError, "408"),
        ({"status": 500, "json": {"error": {"message": "CUDA error"}}}, TransientBackendError, "CUDA error"),
        ({"status": 502, "text": "<html><h1>Bad Gateway</h1></html>"}, ServerUnavailable, "Bad Gateway"),
        ({"status": 504, "text": ""}, ServerUnavailable, "504"),
        ({"status": 401, "json": {"error": "Unauthorized"}}, FatalBackendError, "Unauthorized"),
        ({"status": 400, "json": {"error": {"message": "bad image"}}}, RequestRejected, "bad image"),
        ({"action": "close_before_response"}, TransientBackendError, "closed the connection without an answer"),
        ({"action": "cut_body", "json": {"choices": []}}, TransientBackendError, "in the middle of an answer"),
        ({"status": 200, "json": {"choices": None}}, TransientBackendError, "no choices"),
        ({"status": 200, "json": {"choices": []}}, TransientBackendError, "no choices"),
        ({"status": 200, "json": {"choices": [None]}}, TransientBackendError, "not objects"),
        ({"status": 200, "json": {"choices": [{"index": 0}]}}, TransientBackendError, "without a message"),
        ({"status": 200, "json": {}}, TransientBackendError, "no choices"),
        ({"status": 200, "json": [1, 2]}, TransientBackendError, "not an answer"),
        ({"status": 200, "json": None}, TransientBackendError, "not an answer"),
        ({"status": 200, "text": ""}, TransientBackendError, "an empty body"),
        ({"status": 200, "text": "<html>login</html>"}, TransientBackendError, "not JSON: <html>login"),
        ({"status": 200, "text": '{"choices": [{"ind'}, TransientBackendError, "not JSON"),
        ({"status": 200, "text": "[" * 100_000}, TransientBackendError, "not JSON"),
        ({"status": 400, "text": "[" * 100_000}, RequestRejected, "400"),
        (
            {"status": 200, "json": {"object": "error", "message": "not for this model", "code": 400, "choices": None}},
            RequestRejected,
            "not for this model",
        ),
        ({"status": 200, "json": {"error": {"message": "busy", "code": 429}}}, RateLimited, "busy"),
        ({"status": 200, "json": {"error": {"message": "odd"}, "choices": []}}, TransientBackendError, "odd"),
        (
            {
                "status": 200,
                "json": {"error": {"code": 400, "type": "exceed_context_size_error", "message": "too big"}},
            },
            ContextOverflow,
            "too big",
        ),
        (chat({"message": {"content": 5}, "finish_reason": "stop"}), TransientBackendError, "content of type int"),
        (chat({"message": {"content": "a"}, "finish_reason": "abort"}), TransientBackendError, "'abort'"),
    ],
)
async def test_misbehaviour(entry: dict[str, Any], kind: type[BackendError], message: str) -> None:
    with MockServer([entry]) as server:
        async with opened(server) as backend:
            with pytest.raises(kind, match=message) as caught:
                await backend.generate(ask())
    assert type(caught.value) is kind
    assert f"127.0.0.1:{server.port}" in caught.value.message
    # A connection kept from open() that closes at once counts as stale, so there is one new one.
    assert len(server.generations) == (2 if entry.get("action") == "close_before_response" else 1)


async def test_nothing_is_retried_within_generate() -> None:
    with MockServer([{"status": 500, "json": {}}]) as server:
        async with opened(server) as backend:
            for sent in (1, 2):
                with pytest.raises(TransientBackendError):
                    await backend.generate(ask())
                assert len(server.generations) == sent


async def test_rate_limits_carry_the_servers_time() -> None:
    with MockServer(field_case("B01")) as server:
        async with opened(server) as backend:
            for _ in range(5):
                with pytest.raises(RateLimited, match="slow down") as caught:
                    await backend.generate(ask())
                assert caught.value.retry_after == 2.0
            assert (await backend.generate(ask())).completions[0].message.content == "ok"


async def test_a_paused_server() -> None:
    with MockServer(field_case("B03")) as server:
        async with opened(server) as backend:
            for _ in range(12):
                with pytest.raises(ServerUnavailable, match="paused") as caught:
                    await backend.generate(ask())
                assert caught.value.address == f"127.0.0.1:{server.port}"
            assert len((await backend.generate(ask())).completions) == 1


async def test_a_connection_closed_before_the_answer() -> None:
    with MockServer(field_case("B05")) as server:
        async with opened(server) as backend:
            outcomes = []
            for _ in range(4):
                try:
                    outcomes.append((await backend.generate(ask())).completions[0].message.content)
                except TransientBackendError as error:
                    outcomes.append(type(error).__name__)
            # The first attempt meets it twice: on the connection kept from open(), and on a new one.
            assert outcomes == ["TransientBackendError", "TransientBackendError", "ok", "ok"]
            assert backend.describe()["counts"]["stale_connections"] == 1


async def test_a_stream_that_nobody_asked_for_is_not_an_answer() -> None:
    with MockServer(field_case("B09")) as server:
        async with opened(server) as backend:
            with pytest.raises(TransientBackendError, match="an event stream, although none was asked for"):
                await backend.generate(ask())
    assert "stream" not in server.generations[0].json


async def test_a_200_with_an_error_inside() -> None:
    with MockServer(field_case("B12")) as server:
        async with opened(server) as backend:
            with pytest.raises(RequestRejected, match="chat is not available for this model"):
                await backend.generate(ask())
            with pytest.raises(TransientBackendError, match="no choices"):
                await backend.generate(ask())
            assert (await backend.generate(ask())).completions[0].message.content == "ok"


async def test_thinking_that_was_cut_is_not_content() -> None:
    with MockServer(field_case("B13")) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask())).completions
    assert completion.message.content == ""
    assert completion.message.reasoning == "6*7 is 42 so I would say 4"
    assert completion.finish_reason == "length"
    assert completion.completion_tokens == 64


async def test_an_overflow_of_the_context() -> None:
    with MockServer(field_case("B22")) as server:
        async with opened(server) as backend:
            for _ in range(3):
                await backend.generate(ask())
            with pytest.raises(ContextOverflow, match="maximum context length of 2048"):
                await backend.generate(ask())


async def test_no_chat_template() -> None:
    with MockServer(field_case("B26")) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="without a chat template") as caught:
                await backend.generate(ask())
    assert "--endpoint completions" in str(caught.value.hint)
    assert len(server.generations) == 1


async def test_a_server_that_never_answers() -> None:
    with MockServer(field_case("B28")) as server:
        async with opened(server, timeout=0.2) as backend:
            begin = time.monotonic()
            with pytest.raises(TransientBackendError, match=r"no answer within 0\.2 s"):
                await backend.generate(ask())
            assert time.monotonic() - begin < 5
            assert (await backend.generate(ask())).completions[0].message.content == "ok"


async def test_a_waiting_request_can_be_cancelled() -> None:
    with MockServer([{"action": "hang"}]) as server:
        async with opened(server, timeout=60) as backend:
            tasks = [asyncio.create_task(backend.generate(ask())) for _ in range(3)]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)


# --- n


async def test_n_in_one_request() -> None:
    with MockServer(reply=lambda body, index: f"reply {index}") as server:
        async with opened(server) as backend:
            generation = await backend.generate(ask(n=4))
            assert [c.message.content for c in generation.completions] == [f"reply {index}" for index in range(4)]
            assert backend.capabilities.n is True


async def test_a_server_that_ignores_n(caplog: pytest.LogCaptureFixture) -> None:
    with MockServer(field_case("B16")) as server:
        async with opened(server) as backend:
            assert len((await backend.generate(ask(n=4))).completions) == 1
            assert backend.capabilities.n is False
            assert len((await backend.generate(ask(n=3))).completions) == 1
            assert backend.describe()["counts"] == {
                "n_requests": 2,
                "n_ignored": 1,
                "single_requests": 1,
                "null_logprobs": 2,
                "no_token_ids": 2,
            }
    assert [request.json.get("n") for request in server.generations] == [4, None]
    assert [r.getMessage() for r in caplog.records if "4 completions were asked for and 1 came" in r.getMessage()] != []


async def test_a_server_that_refuses_n() -> None:
    def refuse(request: Any) -> dict[str, Any] | None:
        if request.json.get("n", 1) > 1:
            return {"status": 400, "json": {"error": {"message": "n must be 1 when using greedy sampling, got 8."}}}
        return None

    with MockServer(handler=refuse) as server:
        async with opened(server) as backend:
            assert len((await backend.generate(ask(n=8))).completions) == 1
            assert backend.capabilities.n is False
    assert [request.json.get("n") for request in server.generations] == [8, None]


async def test_too_many_choices_are_cut_and_order_is_by_index() -> None:
    choices = [{"index": index, "message": {"content": str(index)}, "finish_reason": "stop"} for index in (2, 0, 1)]
    with MockServer([chat(*choices)]) as server:
        async with opened(server) as backend:
            generation = await backend.generate(ask(n=2))
    assert [completion.message.content for completion in generation.completions] == ["0", "1"]


# --- contents


@pytest.mark.parametrize(
    ("message", "content", "reasoning"),
    [
        ({"content": ""}, "", None),
        ({"content": None}, "", None),
        ({}, "", None),
        ({"content": "a", "reasoning": "b"}, "a", "b"),
        ({"content": "a", "reasoning_content": None}, "a", None),
        ({"content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}, "42", None),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "4"},
                ]
            },
            "4",
            "hm",
        ),
        ({"content": None, "refusal": "I cannot."}, "I cannot.", None),
    ],
)
async def test_contents(message: dict[str, Any], content: str, reasoning: str | None) -> None:
    with MockServer([chat({"message": message, "finish_reason": "stop"})]) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask())).completions
    assert completion.message.content == content
    assert completion.message.reasoning == reasoning
    assert completion.finish_reason == "stop"


@pytest.mark.parametrize("count", [-1, None, 2.5, "3", True, 10**30])
async def test_counts_that_count_nothing_cost_no_rollout(count: Any) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count}
    with MockServer([chat("42", usage=usage)]) as server:
        async with opened(server) as backend:
            answer = await backend.generate(ask())
    assert answer.completions[0].message.content == "42"
    assert (answer.prompt_tokens, answer.completions[0].completion_tokens, answer.usage) == (None, None, None)


async def test_half_surrogates_from_the_server_are_cleaned() -> None:
    body = '{"choices": [{"index": 0, "message": {"content": "a\\ud83d b \\ud83d\\ude00"}, "finish_reason": "stop"}]}'
    with MockServer([{"text": body}]) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask())).completions
    assert completion.message.content == "a\ufffd b \U0001f600"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("eos_token", "stop"),
        ("function_call", "tool_calls"),
        ("", None),
        (None, None),
        (7, None),
    ],
)
async def test_finish_reasons(given: Any, expected: str | None) -> None:
    with MockServer([chat({"message": {"content": "x"}, "finish_reason": given})]) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask())).completions
            assert completion.finish_reason == completion.message.finish_reason == expected
            assert backend.describe()["counts"].get("no_finish_reason") == (1 if expected is None else None)


async def test_tool_calls() -> None:
    message = {
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "move", "arguments": '{"to": "north"}'}},
            {"function": {"name": "look", "arguments": {"at": "door"}}},
            {"id": "c3", "function": {"name": "wait", "arguments": None}},
            {"id": "c4", "function": {"arguments": "{}"}},
            "nonsense",
        ],
    }
    with MockServer([chat({"message": message, "finish_reason": "tool_calls"})]) as server:
        async with opened(server) as backend:
            (completion,) = (await backend.generate(ask(tools=(TOOL,)))).completions
            assert backend.capabilities.tools is True
            assert backend.describe()["counts"]["bad_tool_calls"] == 2
    assert completion.message.content is None
    assert completion.message.tool_calls == (
        ToolCall(id="c1", function=FunctionCall(name="move", arguments='{"to": "north"}')),
        ToolCall(id=None, function=FunctionCall(name="look", arguments='{"at":"door"}')),
        ToolCall(id="c3", function=FunctionCall(name="wait", arguments="{}")),
    )


async def test_refused_tools_stop_the_run() -> None:
    entry = {"status": 400, "json": {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}}}
    with MockServer([entry]) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="refuses tools") as caught:
                await backend.generate(ask(tools=(TOOL,)))
    assert "--tool-call-parser" in str(caught.value.hint)


# --- fields the server does not take


async def test_max_tokens_is_renamed_when_the_server_says_so() -> None:
    def refuse(request: Any) -> dict[str, Any] | None:
        if "max_tokens" in request.json:
            text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."
            return {"status": 400, "json": {"error": {"message": text, "param": "max_tokens"}}}
        return None

    with MockServer(handler=refuse) as server:
        async with opened(server) as backend:
            await backend.generate(ask(max_tokens=5))
            await backend.generate(ask(max_tokens=5))
            assert "max_completion_tokens" in backend.describe()["request_fields"]
    sizes = [(r.json.get("max_tokens"), r.json.get("max_completion_tokens")) for r in server.generations]
    assert sizes == [(5, None), (None, 5), (None, 5)]


async def test_a_sampling_setting_that_the_server_does_not_know_stops_the_run() -> None:
    entry = {"status": 400, "json": {"error": {"message": "Unrecognized request argument supplied: top_k"}}}
    with MockServer([entry]) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="'top_k'") as caught:
                await backend.generate(ask(top_k=5))
    assert "--top-k" in str(caught.value.hint)


async def test_a_refused_seed_is_left_out() -> None:
    def refuse(request: Any) -> dict[str, Any] | None:
        if "seed" in request.json:
            return {
                "status": 422,
                "json": {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
            }
        return None

    with MockServer(handler=refuse) as server:
        async with opened(server) as backend:
            await backend.generate(ask(seed=3))
            assert "seed" in backend.describe()["dropped_fields"]


# --- the completions endpoint


async def test_completions_send_exact_ids() -> None:
    with MockServer(flavor="vllm", reply="next") as server:
        async with opened(server, endpoint="completions") as backend:
            request = ask(n=2).replace(messages=(), prompt_ids=(72, 105, 32))
            generation = await backend.generate(request)
    body = server.generations[0].json
    assert server.generations[0].path == "/v1/completions"
    assert body["prompt"] == [72, 105, 32]
    assert body["logprobs"] == 0
    assert "messages" not in body
    assert generation.prompt_ids == (72, 105, 32)
    assert [completion.message.content for completion in generation.completions] == ["next", "next"]


async def test_completions_render_messages() -> None:
    request = ask().replace(messages=(system("Play."), user("Go")))
    with MockServer() as server:
        async with opened(server, endpoint="completions") as backend:
            assert (await backend.generate(request)).completions[0].message.content == "ok"
        async with opened(server, endpoint="completions", chat_template="chatml") as backend:
            await backend.generate(request)
            await backend.generate(request.replace(sampling=Sampling(stop=("END",))))
            with pytest.raises(FatalBackendError, match="cannot show tools"):
                await backend.generate(request.replace(tools=(TOOL,)))
    first, second, third = (request.json for request in server.generations)
    assert first["prompt"] == "Play.\n\nGo"
    assert "stop" not in first
    assert (
        second["prompt"]
        == "<|im_start|>system\nPlay.<|im_end|>\n<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
    )
    assert second["stop"] == ["<|im_end|>"]
    assert third["stop"] == ["<|im_end|>", "END"]


async def test_the_chat_endpoint_cannot_take_ids() -> None:
    with MockServer() as server:
        async with opened(server) as backend:
            with pytest.raises(RequestRejected, match="needs messages"):
                await backend.generate(ask().replace(messages=(), prompt_ids=(1, 2)))


# --- secrets


async def test_the_key_is_sent_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = "sk-very-secret-1234"
    monkeypatch.setenv("MY_KEY", key)
    caplog.set_level(logging.DEBUG)
    with MockServer(
        [chat("ok"), {"status": 401, "json": {"error": {"message": f"Incorrect API key: {key}"}}}]
    ) as server:
        async with opened(server, api_key_env="MY_KEY") as backend:
            await backend.generate(ask())
            with pytest.raises(FatalBackendError, match=r"\[secret\]") as caught:
                await backend.generate(ask())
            shown = json.dumps(backend.describe()) + backend.config.model_dump_json() + repr(backend.config)
    assert server.generations[0].headers["authorization"] == f"Bearer {key}"
    assert "MY_KEY" in str(caught.value.hint)
    assert key not in shown + caught.value.message + str(caught.value.hint) + caplog.text


async def test_what_a_run_records() -> None:
    with MockServer(flavor="vllm") as server:
        async with opened(server) as backend:
            await backend.generate(ask(n=2))
            described = backend.describe()
    assert described == {
        "name": "openai",
        "capabilities": {
            "logprobs": True,
            "token_ids": True,
            "n": True,
            "weight_sync": True,
            "prefill": True,
            "choices": True,
        },
        "model": "mock-model",
        "endpoint": "chat",
        "servers": [{"url": server.base_url, "kind": "vllm", "version": "0.0-mock"}],
        "request_fields": ["return_token_ids", "logprobs", "max_tokens"],
        "dropped_fields": {},
        "prompt_scoring": None,
        "counts": {"n_requests": 1},
    }
    json.dumps(described)


async def test_a_long_conversation_keeps_its_turns() -> None:
    turns = tuple(user(str(i)) if i % 2 == 0 else assistant(str(i)) for i in range(41))
    with MockServer() as server:
        async with opened(server) as backend:
            await backend.generate(ask().replace(messages=turns))
    assert [message["content"] for message in server.generations[0].json["messages"]] == [str(i) for i in range(41)]


async def test_a_reply_that_has_begun_is_continued() -> None:
    with MockServer([chat("4 + 2")]) as server:
        async with opened(server) as backend:
            assert backend.capabilities.prefill
            generation = await backend.generate(ask(prefill="<think>"))
    body = server.generations[0].json
    assert body["messages"][-1] == {"role": "assistant", "content": "<think>"}
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False
    assert generation.completions[0].message.content == "4 + 2"


async def test_a_text_prompt_ends_with_what_the_reply_begins_with() -> None:
    with MockServer(flavor="vllm") as server:
        async with opened(server, endpoint="completions", chat_template="chatml") as backend:
            await backend.generate(ask(prefill="<think>"))
    assert server.generations[0].json["prompt"].endswith("<|im_start|>assistant\n<think>")


async def test_a_server_that_cannot_continue_a_reply_is_a_fatal_error() -> None:
    words = {"error": {"message": "Unrecognized request argument supplied: continue_final_message", "type": "invalid"}}
    with MockServer([{"status": 400, "json": words}]) as server:
        async with opened(server) as backend:
            with pytest.raises(FatalBackendError, match="continue_final_message") as caught:
                await backend.generate(ask(prefill="<think>"))
    assert "--prefill" in str(caught.value.hint)
