"""Each answer of a server has one outcome, whatever words it uses."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from atropos_cli.builtin.openai.errors import Asked, classify, code_inside, error_words, read_error, retry_after
from atropos_cli.sdk.backends import (
    BackendError,
    ContextOverflow,
    FatalBackendError,
    RateLimited,
    RequestRejected,
    ServerUnavailable,
    TransientBackendError,
)

ASKED = Asked(
    address="gpu-3:8000",
    url="http://gpu-3:8000/v1/chat/completions",
    model="Qwen/Qwen3-8B",
    key_env="MY_KEY",
    models=("Qwen/Qwen3-8B-Base", "llama"),
)


def outcome(status: int, body: Any, headers: dict[str, str] | None = None, asked: Asked = ASKED) -> BackendError:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return classify(status, read_error(data), asked, headers=headers)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "too long", "code": "context_length_exceeded"}},
        {"error": {"message": "Request of 2101 tokens is over the maximum context length of 2048 tokens"}},
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, your prompt contains 9000"
            }
        },
        {
            "object": "error",
            "message": "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        },
        {
            "error": {
                "message": "The decoder prompt (length 8192) plus the number of requested output tokens (at least 1)"
                " is longer than the maximum model length of 8192."
            }
        },
        {"error": {"message": "Input length (9000) exceeds model's maximum context length (8192)."}},
        {
            "object": "error",
            "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        },
        {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of 8192 tokens.",
        },
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9000,
                "n_ctx": 8192,
            }
        },
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs`"
            " tokens and 60 `max_new_tokens`",
            "error_type": "validation",
        },
        {"error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2000"},
        {"error": {"message": "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000"}},
        {"error": {"message": "Requested tokens (2285) exceed context window of 2048"}},
        {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}},
        {"detail": "max_tokens=4000 and prompt exceed max_model_len 4096"},
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_context_that_is_too_long(status: int, body: Any) -> None:
    assert type(outcome(status, body)) is ContextOverflow


@pytest.mark.parametrize(
    "message",
    [
        "invalid character in prompt",
        "temperature must be at least 0",
        "the message list is longer than allowed: context of the user is missing",
        "stop sequences: at most 4",
    ],
)
def test_other_bad_requests_are_rejected_with_the_servers_words(message: str) -> None:
    error = outcome(400, {"error": {"message": message}})
    assert type(error) is RequestRejected
    assert message in error.message
    assert error.status == 400


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestRejected),
        (409, RequestRejected),
        (413, ContextOverflow),
        (422, RequestRejected),
        (401, FatalBackendError),
        (402, FatalBackendError),
        (403, FatalBackendError),
        (404, FatalBackendError),
        (405, FatalBackendError),
        (307, FatalBackendError),
        (408, TransientBackendError),
        (429, RateLimited),
        (500, TransientBackendError),
        (501, TransientBackendError),
        (502, ServerUnavailable),
        (503, ServerUnavailable),
        (504, ServerUnavailable),
        (529, TransientBackendError),
    ],
)
@pytest.mark.parametrize("body", [b"", b"<html><body>oops</body></html>", b'{"error": {"message": "oops"}}', b"[1]"])
def test_statuses(status: int, kind: type[BackendError], body: bytes) -> None:
    assert type(outcome(status, body)) is kind


def test_retry_after_in_seconds_milliseconds_and_as_a_date() -> None:
    assert retry_after({"retry-after": "2"}) == 2.0
    assert retry_after({"retry-after": "0.5"}) == 0.5
    assert retry_after({"retry-after-ms": "1500"}) == 1.5
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": soon}) == pytest.approx(30, abs=2)
    past = format_datetime(datetime.now(UTC) - timedelta(seconds=30), usegmt=True)
    assert retry_after({"retry-after": past}) == 0.0
    for nonsense in ("", "soon", "-3", "inf", "nan", "Fri, 99 Foo 2020"):
        assert retry_after({"retry-after": nonsense}) is None
    assert retry_after({}) is None


def test_retry_after_reaches_the_error() -> None:
    for status in (429, 503, 500):
        error = outcome(status, {}, {"retry-after": "7"})
        assert isinstance(error, TransientBackendError)
        assert error.retry_after == 7.0


def test_a_used_up_quota_is_not_a_rate_limit() -> None:
    error = outcome(429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}})
    assert type(error) is FatalBackendError


def test_a_refused_key_names_the_variable() -> None:
    assert "MY_KEY" in str(outcome(401, {"error": "Unauthorized"}).hint)
    without = Asked(address="h:1", url="http://h:1/v1", model="m")
    assert "--api-key-env" in str(outcome(403, {}, asked=without).hint)


def test_an_unknown_model_lists_what_there_is() -> None:
    error = outcome(404, {"error": {"message": "The model `Qwen/Qwen3-8B` does not exist.", "param": "model"}})
    assert type(error) is FatalBackendError
    assert "it has: Qwen/Qwen3-8B-Base, llama" in error.message
    assert error.hint == "--model Qwen/Qwen3-8B-Base"


def test_an_unknown_path_speaks_of_the_address() -> None:
    error = outcome(404, {"detail": "Not Found"})
    assert type(error) is FatalBackendError
    assert "there is no http://gpu-3:8000/v1/chat/completions" in error.message
    assert "--base-url" in str(error.hint)
    assert "--endpoint completions" in str(error.hint)


@pytest.mark.parametrize(
    "message",
    [
        "no chat template: the tokenizer defines none and none was given",
        "default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not",
        "Cannot use chat template functions because tokenizer.chat_template is not set and no template argument",
        "This model does not have a chat template",
    ],
)
def test_no_chat_template_names_the_two_ways_out(message: str) -> None:
    error = outcome(400, {"object": "error", "message": message})
    assert type(error) is FatalBackendError
    assert "--chat-template" in str(error.hint)
    assert "--endpoint completions" in str(error.hint)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens=600 cannot be greater than max_model_len=512. Please request fewer output tokens.",
        "max_tokens is too large: 600. This model supports at most 512 completion tokens, whereas you provided 600.",
        "max_completion_tokens is too large: 600. This model supports at most 512 completion tokens.",
    ],
)
def test_more_tokens_than_the_model_can_give_stop_the_run(message: str) -> None:
    error = outcome(400, {"error": {"message": message}})
    assert type(error) is FatalBackendError
    assert error.hint == "lower --max-tokens"


def test_a_template_that_refuses_one_conversation_is_not_fatal() -> None:
    error = outcome(400, {"error": {"message": "Conversation roles must alternate user/assistant/user/..."}})
    assert type(error) is RequestRejected


def test_refused_tools() -> None:
    with_tools = Asked(address="h:1", url="http://h:1/v1", model="m", with_tools=True)
    message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    error = outcome(400, {"error": {"message": message}}, asked=with_tools)
    assert type(error) is FatalBackendError
    assert "--tool-call-parser" in str(error.hint)
    assert type(outcome(400, {"error": {"message": message}})) is RequestRejected


@pytest.mark.parametrize(
    ("body", "message", "code", "param"),
    [
        ({"error": {"message": "m", "code": 400, "param": "p"}}, "m", "400", "p"),
        ({"error": "m", "error_type": "validation"}, "m", "", ""),
        ({"object": "error", "message": "m", "code": 400}, "m", "400", ""),
        ({"detail": "m"}, "m", "", ""),
        (
            {"detail": [{"loc": ["body", "return_token_ids"], "msg": "not permitted", "type": "extra_forbidden"}]},
            "return_token_ids: not permitted (extra_forbidden)",
            "",
            "return_token_ids",
        ),
        (
            {"error": {"message": None, "code": "paused", "retryable": True}},
            "{'code': 'paused', 'retryable': True}",
            "paused",
            "",
        ),
        ("just text", "just text", "", ""),
    ],
)
def test_error_shapes(body: Any, message: str, code: str, param: str) -> None:
    words = error_words(body)
    assert (words.message, words.code, words.param) == (message, code, param)


def test_html_is_shown_as_its_text_and_terminals_are_safe() -> None:
    page = b"<html><head><style>p {}</style></head><body><h1>502 Bad Gateway</h1>\x1b[31mnginx</body></html>"
    words = read_error(page)
    assert words.message == "502 Bad Gateway [31mnginx"
    assert len(read_error(b"x" * 100_000).message) < 1000


@pytest.mark.parametrize(
    ("message", "param", "field", "expected"),
    [
        ("Unrecognized request argument supplied: return_token_ids", "", "return_token_ids", True),
        ("Extra inputs are not permitted", "return_token_ids", "return_token_ids", True),
        ("This model does not support logprobs.", "", "logprobs", True),
        ("'seed' is not supported", "", "seed", True),
        ("unknown field: seed", "", "seed", True),
        ("unsupported request", "", "return_token_ids", False),
        ("I have no idea what the seed of doubt is; unknown", "", "seed", False),
        ("top_logprobs is not supported", "", "logprobs", False),
        ("return_token_ids must be a bool", "", "return_token_ids", False),
    ],
)
def test_complaints_about_a_field(message: str, param: str, field: str, expected: bool) -> None:
    assert error_words({"error": {"message": message, "param": param}}).names_unsupported(field) is expected


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        (429, None, 429),
        ("404", None, 404),
        ("paused", None, 503),
        (None, "overloaded_error", 503),
        (200, None, None),
        ("weird", None, None),
    ],
)
def test_the_code_inside_a_200(code: Any, kind: Any, status: int | None) -> None:
    assert code_inside(error_words({"error": {"message": "m", "code": code, "type": kind}})) == status
