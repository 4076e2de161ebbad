"""What went wrong, by an answer of an OpenAI-compatible server: each misbehaviour has one outcome.

    429                              RateLimited, with Retry-After; FatalBackendError for a used-up quota (also 402)
    408, 500 and other 5xx           TransientBackendError
    502, 503, 504                    ServerUnavailable, with Retry-After
    401, 403                         FatalBackendError: the key
    404                              FatalBackendError: the model, or the path
    413                              ContextOverflow
    400, 422                         ContextOverflow by what is meant (too_much); FatalBackendError for what
                                     every request would meet (no chat template, tools refused, max_tokens
                                     beyond the model); else RequestRejected
    other 4xx                        RequestRejected; 3xx FatalBackendError
    200 without an answer            by the code inside the body, else TransientBackendError

Servers word the same error in many ways, so all wordings are in this file.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from pydantic_core import from_json

from atropos_cli.sdk import clean_text
from atropos_cli.sdk.backends import (
    BackendError,
    ContextOverflow,
    FatalBackendError,
    RateLimited,
    RequestRejected,
    ServerUnavailable,
    TransientBackendError,
    too_much,
)

_NO_TEMPLATE = re.compile(
    r"no chat[ _]template|chat[ _]template.{0,80}(not set|not defined|is not|missing|no longer allowed|does not define)"
    r"|(does not|doesn't) (have|define|support) (a |any )?chat[ _]templates?|must provide a chat template",
    re.IGNORECASE | re.DOTALL,
)
_TOOLS = re.compile(
    r"tool[ _-]call[ _-]parser|enable-auto-tool-choice|\btools?\b.{0,60}(not supported|unsupported|not support)"
    r"|(not support|unsupported|not supported).{0,40}\btools?\b|tool[ _]choice",
    re.IGNORECASE | re.DOTALL,
)
_UNKNOWN_MODEL = re.compile(
    r"model.{0,160}(does not exist|not found|not exist|unknown|not available|not loaded|no access)"
    r"|(unknown|no such|invalid) model|model_not_found",
    re.IGNORECASE | re.DOTALL,
)
_UNSUPPORTED = re.compile(
    r"unrecognized|unrecognised|unknown|unsupported|not supported|(does not|doesn't|not) support|not permitted"
    r"|extra_forbidden|extra (inputs|fields)|unexpected|not allowed|not accept|additional propert"
    r"|invalid (field|argument|parameter)",
    re.IGNORECASE,
)
_ONE_CHOICE = re.compile(
    r"only one (completion )?choice|\bn\b['\"`]? must be (equal to )?1\b|['\"`]n['\"`].{0,60}(unsupported|not supported"
    r"|must be|less than|at most)|\bn ?> ?1\b|multiple (choices|completions)|best_of",
    re.IGNORECASE | re.DOTALL,
)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_WORDS = 600
_SAY_WHAT = frozenset({400, 404, 406, 409, 410, 413, 414, 416, 422, 431, 500, 501})
_INNER = ("metadata", "innererror", "inner_error", "cause", "details", "upstream_error", "provider_error", "raw")
"""Where proxies put what the server behind them said."""
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """What a server said about an error: its message, and code, type and parameter where it named them."""

    message: str
    code: str = ""
    type: str = ""
    param: str = ""

    @property
    def everything(self) -> str:
        """All of it in one text, to look for wordings in."""
        return f"{self.message} {self.code} {self.type}"

    def names_unsupported(self, field: str) -> bool:
        """Is this the complaint that the request field is unknown or unsupported?"""
        if not _UNSUPPORTED.search(self.everything):
            return False
        if self.param.rpartition(".")[2] == field:
            return True
        name = re.escape(field)
        # A distinctive name counts wherever it stands; "seed" or "n" only where the text points at a field.
        if "_" in field or field == "logprobs":
            return re.search(rf"(?<![\w]){name}(?![\w])", self.message) is not None
        return (
            re.search(rf"['\"`]{name}['\"`]|(supplied|arguments?|parameters?|fields?|inputs?): {name}\b", self.message)
            is not None
        )

    @property
    def refuses_n(self) -> bool:
        """Is this the complaint that only one choice can be had per request?"""
        return self.param == "n" or _ONE_CHOICE.search(self.message) is not None


def read_error(body: bytes) -> ErrorWords:
    """The words of an error body of any known shape; the text itself, without tags, where it is not JSON."""
    try:
        return error_words(from_json(body))
    except ValueError:
        text = _TAGS.sub(" ", body[:20000].decode("utf-8", "replace"))
        return ErrorWords(_short(text) or "(an empty answer)")


def error_words(data: Any) -> ErrorWords:
    """The words of a parsed error body, with those of a server behind a proxy."""
    if isinstance(data, list) and data and isinstance(data[0], dict):  # Gemini's OpenAI endpoint
        data = data[0]
    words = _own_words(data)
    inner = data.get("error") if isinstance(data, dict) else None
    behind = _behind(inner, _DEEPEST) if isinstance(inner, dict) else ""
    if not behind or behind in words.message:
        return words
    return replace(words, message=_short(f"{words.message}: {behind}"))


def _behind(source: Any, depth: int) -> str:
    """The words of the error inside an error; "" without one."""
    if isinstance(source, list):
        source = next((item for item in source if isinstance(item, dict)), None)
    if isinstance(source, str) and source.lstrip().startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            return _behind({"raw": from_json(source)}, depth - 1) if depth else ""
    if isinstance(source, str):
        return source
    if not isinstance(source, dict) or not depth:
        return ""
    for name in _INNER:
        if (value := source.get(name)) is not None and (found := _said(value, depth - 1)):
            return found
    return ""


def _said(value: Any, depth: int) -> str:
    """What an inner error says itself, or what the one inside it says."""
    if isinstance(value, dict) and "raw" not in value:
        words = _own_words(value).message if ("error" in value or "message" in value) else ""
        return words or _behind(value, depth)
    return _behind(value, depth)


def _own_words(data: Any) -> ErrorWords:
    if not isinstance(data, dict):
        return ErrorWords(_short(str(data)))
    inner = data.get("error")
    if isinstance(inner, str):
        return ErrorWords(_short(inner), _text(data.get("code")), _text(data.get("error_type") or data.get("type")))
    source = inner if isinstance(inner, dict) else data
    param = _text(source.get("param"))
    detail = source.get("detail")
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        parts = []
        for item in detail:
            place = item.get("loc")
            where = ".".join(str(step) for step in place if step != "body") if isinstance(place, list) else ""
            param = param or where
            parts.append(f"{where}: {item.get('msg', '')} ({item.get('type', '')})")
        message = "; ".join(parts)
    else:
        message = _text(source.get("message") or detail or source.get("msg"))
    if not message:
        message = str({key: value for key, value in source.items() if value is not None})
    return ErrorWords(_short(message), _text(source.get("code")), _text(source.get("type")), param)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _short(text: str) -> str:
    # Control characters go too: a server must not be able to write escape sequences to a terminal.
    words = clean_text(" ".join(_CONTROL.sub(" ", text).split()))
    return words if len(words) <= _MAX_WORDS else words[:_MAX_WORDS] + "..."


def retry_after(headers: dict[str, str]) -> float | None:
    """Seconds to wait, by Retry-After (seconds or a date) or retry-after-ms; None when not said or not sensible."""
    try:
        if (ms := headers.get("retry-after-ms")) is not None:
            return _sensible(float(ms) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        try:
            return _sensible(float(value))
        except ValueError:
            when = parsedate_to_datetime(value)
            if when.tzinfo is None:
                when = when.replace(tzinfo=UTC)
            return max(0.0, (when - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _sensible(seconds: float) -> float | None:
    return seconds if 0 <= seconds < float("inf") else None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the request was, as far as error texts need it. `url` is without credentials."""

    address: str
    url: str
    model: str
    endpoint: str = "chat"
    with_tools: bool = False
    key_env: str | None = None
    models: Sequence[str] = ()


def classify(status: int, words: ErrorWords, asked: Asked, *, headers: dict[str, str] | None = None) -> BackendError:
    """The error that an answer with this status means. status may come from inside the body of a 200."""
    said = f"{asked.address} answered {status}: {words.message}"
    wait = retry_after(headers or {})
    if status == 402 or (status == 429 and "insufficient_quota" in (words.code, words.type)):
        return FatalBackendError(said, hint="the account behind the key has no credit left")
    if status == 429:
        return RateLimited(said, retry_after=wait, hint="lower --workers if this continues")
    # Servers and proxies give a too long prompt many statuses, so what they say goes before the status.
    excess = "context" if status == 413 else exceeded_limit(words) if status in _SAY_WHAT else None
    if excess == "max_tokens" and status in (400, 422):
        return FatalBackendError(said, hint="lower --max-tokens")
    if excess == "context":
        return ContextOverflow(said, status=status, hint="lower --max-tokens, or serve a longer context")
    if status in (502, 503, 504):
        return ServerUnavailable(said, retry_after=wait, address=asked.address)
    if status == 408 or status >= 500:
        broken = TransientBackendError(said, retry_after=wait)
        broken.billed = False  # nobody charges for an error that it reports itself
        return broken
    if status in (401, 403, 407):
        return FatalBackendError(said, hint=_key_hint(asked))
    if status in (404, 405):
        return _not_found(said, words, asked)
    if 300 <= status < 400:
        place = _short((headers or {}).get("location", "elsewhere"))
        return FatalBackendError(
            f"{asked.url} redirects to {place}", hint="use the address it redirects to as --base-url"
        )
    return _rejected(status, said, words, asked)


def exceeded_limit(words: ErrorWords) -> Literal["context", "max_tokens"] | None:
    """Is this the complaint that prompt and completion do not fit the context, or max_tokens alone does not?"""
    return too_much(words.message, words.code, words.type, param=words.param)


def _rejected(status: int, said: str, words: ErrorWords, asked: Asked) -> BackendError:
    if _NO_TEMPLATE.search(words.message):
        return FatalBackendError(
            f"{asked.model!r} is served without a chat template ({said})",
            hint="two ways out: start the server with one (--chat-template FILE), or use --endpoint completions",
        )
    if asked.with_tools and _TOOLS.search(words.everything):
        return FatalBackendError(
            f"the server refuses tools ({said})",
            hint="start it with --tool-call-parser NAME (vLLM: and --enable-auto-tool-choice), "
            "or add --tools-in prompt, where the environment has this option",
        )
    if words.code == "model_not_found" or (status == 400 and words.param == "model"):
        return _not_found(said, words, asked)
    return RequestRejected(said, status=status)


def _not_found(said: str, words: ErrorWords, asked: Asked) -> FatalBackendError:
    if words.param == "model" or _UNKNOWN_MODEL.search(words.everything):
        return unknown_model(asked.model, asked.models, asked.address, said)
    other = "completions" if asked.endpoint == "chat" else "chat"
    return FatalBackendError(
        f"there is no {asked.url} ({said})",
        hint=f"check --base-url (it usually ends in /v1), or try --endpoint {other}",
    )


def unknown_model(model: str, models: Sequence[str], address: str, said: str | None = None) -> FatalBackendError:
    """The error for a model that the server does not have, with those it has and the closest one."""
    message = f"{address} has no model {model!r}"
    if models:
        shown = ", ".join(models[:20]) + (f" and {len(models) - 20} more" if len(models) > 20 else "")
        message += f"; it has: {shown}"
    elif said:
        message += f" ({said})"
    close = difflib.get_close_matches(model, models, n=1, cutoff=0.5)
    if not close:
        # "Qwen3-8B" for "Qwen/Qwen3-8B"
        close = [name for name in models if name.lower().endswith(model.lower().rpartition("/")[2])][:1]
    return FatalBackendError(
        message, hint=f"--model {close[0]}" if close else "--model NAME, as the server's /v1/models lists it"
    )


_SERVER_KEYS = ("VLLM_API_KEY", "SGLANG_API_KEY")
"""Keys of servers of one's own, as the launch commands have them."""


def _key_hint(asked: Asked) -> str:
    if asked.key_env is None:
        name = next((name for name in _SERVER_KEYS if os.environ.get(name, "").strip()), "NAME")
        return f"name the environment variable that holds the API key: --api-key-env {name}"
    return f"check the API key in the environment variable {asked.key_env}"


def code_inside(words: ErrorWords) -> int | None:
    """The HTTP status that an error inside a 200 body stands for, None when it names none."""
    if exceeded_limit(words) == "context":
        return 400
    if words.code.isdecimal() and 400 <= int(words.code) <= 599:
        return int(words.code)
    known = {
        "rate_limit_exceeded": 429,
        "rate_limit": 429,
        "insufficient_quota": 429,
        "invalid_api_key": 401,
        "authentication_error": 401,
        "model_not_found": 404,
        "invalid_request_error": 400,
        "context_length_exceeded": 400,
        "exceed_context_size_error": 400,
        "BadRequestError": 400,
        "overloaded_error": 503,
        "paused": 503,
    }
    return next((known[name] for name in (words.code, words.type) if name in known), None)
