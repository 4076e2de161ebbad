"""litellm's exceptions as ours, so that the engine knows what to do about them.

RateLimitError                          RateLimited, with Retry-After; FatalBackendError for a used-up quota
ServiceUnavailable, BadGateway          ServerUnavailable, and where nobody listens
Timeout, InternalServerError, others    TransientBackendError
ContextWindowExceededError              ContextOverflow
AuthenticationError, PermissionDenied   FatalBackendError: the key
NotFoundError                           FatalBackendError: the model
other BadRequestErrors                  RequestRejected
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

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
from atropos_cli.sdk.secrets import redacted

_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE)
_LONGEST = 400


def classify(error: Exception, library: Any, model: str, provider: str) -> BackendError:
    """The error to raise for one that a call of litellm raised."""
    kinds = library.exceptions
    said = _said(error, model)
    if isinstance(error, BackendError):
        return error
    if isinstance(error, kinds.RateLimitError):
        codes = " ".join(str(getattr(one, name, "")) for one in _chain(error) for name in ("code", "type"))
        if _QUOTA.search(f"{said} {codes}"):
            return FatalBackendError(said, hint="the provider's quota or credit is used up")
        return RateLimited(said, retry_after=_retry_after(error))
    if isinstance(error, kinds.AuthenticationError | kinds.PermissionDeniedError):
        return FatalBackendError(said, hint=f"check the API key of {provider!r}, or name its variable: --api-key-env")
    if isinstance(error, kinds.NotFoundError):
        return FatalBackendError(said, hint=f"check the model's name at {provider!r}: --model PROVIDER/NAME")
    if isinstance(error, kinds.ContextWindowExceededError):
        return ContextOverflow(said, status=400)
    if isinstance(error, kinds.BadRequestError | kinds.UnprocessableEntityError):
        if too_much(said) == "context":
            return ContextOverflow(said, status=400)
        return RequestRejected(said, status=getattr(error, "status_code", None))
    return _passing(error, kinds, said)


def _passing(error: Exception, kinds: Any, said: str) -> BackendError:
    """What may go well another time."""
    status = _status(error)
    if status is not None and 400 <= status < 500 and status not in (408, 429):
        return RequestRejected(said, status=status)
    if status == 529:  # Anthropic's "overloaded"
        return RateLimited(said, retry_after=_retry_after(error))
    gone = {"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "ClientConnectorError"}
    if isinstance(error, kinds.ServiceUnavailableError | kinds.BadGatewayError) or gone & _causes(error):
        return ServerUnavailable(said, retry_after=_retry_after(error))
    broken = TransientBackendError(said, retry_after=_retry_after(error))
    # An error that the provider reports itself is not charged for; an answer that never came may be.
    broken.billed = isinstance(error, kinds.Timeout | kinds.APIConnectionError) or status is None
    return broken


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised for; litellm often wraps the provider's error in one that says less."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def _causes(error: BaseException) -> set[str]:
    return {type(one).__name__ for one in _chain(error)}


def _status(error: Exception) -> int | None:
    """The status that the provider answered with, by the innermost error that has one."""
    told = [getattr(one, "status_code", None) for one in _chain(error)]
    return next((status for status in reversed(told) if isinstance(status, int)), None)


def _said(error: Exception, model: str) -> str:
    text = " ".join(str(error).split())
    text = re.sub(r"^((litellm\.)?\w+Error: )+", "", text)
    text = re.sub(r"\.? Handle with `litellm\.\w+`\.?", "", text)
    text = re.sub(r" ?\S*<[\w.]+ object at 0x[0-9a-f]+>", "", text)
    return redacted(f"{model}: {text or type(error).__name__}")[:_LONGEST]


def _retry_after(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or getattr(
        error, "litellm_response_headers", None
    )
    with contextlib.suppress(TypeError, ValueError, AttributeError):
        wait = float((headers or {}).get("retry-after", "none"))
        return wait if 0 <= wait < float("inf") else None
    return None
