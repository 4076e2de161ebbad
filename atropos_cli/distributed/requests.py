"""Requests to the trainer's model, and its replies, as JSON."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.errors import RequestRejected
from atropos_cli.ports.backend import Completion, GenerateRequest, Generation

_SHOWN = {"role", "content", "tool_calls", "tool_call_id", "name"}


def request_data(request: GenerateRequest) -> dict[str, Any]:
    """The request in OpenAI's shape."""
    messages = [one.model_dump(mode="json", include=_SHOWN, exclude_none=True) for one in request.messages]
    for message in messages:
        message.setdefault("content", "")
    return {
        "messages": messages,
        "tools": list(request.tools) if request.tools else None,
        "sampling": request.sampling.model_dump(mode="json", exclude_none=True),
    }


def completion_of(reply: dict[str, Any]) -> Generation:
    """The trainer's reply, with its tokens where it gives them. Raises RequestRejected for one that is none."""
    try:
        ids, prompt = reply.get("ids"), reply.get("prompt_ids")
        span = None if ids is None else TokenSpan(ids=tuple(ids), mask=True, logprobs=reply.get("logprobs"))
        message = Message(role="assistant", content=str(reply["text"]), tokens=span)
        completion = Completion(
            message=message,
            finish_reason=reply.get("finish_reason") or "stop",
            completion_tokens=None if ids is None else len(ids),
        )
        return Generation(
            completions=(completion,),
            prompt_ids=None if prompt is None else tuple(prompt),
            prompt_tokens=None if prompt is None else len(prompt),
        )
    except (KeyError, TypeError, ValidationError) as error:
        raise RequestRejected(f"the trainer's reply is none: {str(error).splitlines()[0]}") from error
