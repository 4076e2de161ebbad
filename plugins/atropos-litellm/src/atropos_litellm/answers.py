"""litellm's answers, read into a Generation. They hold what a provider sent: nothing in them is trusted."""

from __future__ import annotations

import math
from typing import Any

from pydantic import ValidationError

from atropos_cli.sdk import FunctionCall, Message, ToolCall, clean_text
from atropos_cli.sdk.backends import Completion, Generation, TokenUsage, TransientBackendError, finish_of


def read_answer(answer: Any, library: Any, *, n: int) -> Generation:
    """The answer of one call. Raises TransientBackendError where it holds none."""
    choices = list(getattr(answer, "choices", None) or ())[:n]
    if not choices:
        raise TransientBackendError("the provider answered without a completion")
    usage = _usage(answer, library)
    alone = usage.completion_tokens if len(choices) == 1 else None
    try:
        completions = tuple(_completion(choice, alone) for choice in choices)
    except (ValidationError, AttributeError, TypeError) as error:
        raise TransientBackendError(f"the provider's answer cannot be read: {error}") from error
    return Generation(completions=completions, prompt_tokens=usage.prompt_tokens, usage=usage)


def _completion(choice: Any, tokens: int | None) -> Completion:
    said = choice.message
    content, reasoning = said.content, getattr(said, "reasoning_content", None)
    calls = tuple(_call(call) for call in said.tool_calls or ()) or None
    message = Message(
        role="assistant",
        content=clean_text(content) if isinstance(content, str) else (None if calls else ""),
        reasoning=clean_text(reasoning) if isinstance(reasoning, str) and reasoning else None,
        tool_calls=calls,
    )
    reason = finish_of(choice.finish_reason) if choice.finish_reason else None
    if reason == "error":
        raise TransientBackendError("the provider broke the completion off with an error")
    return Completion(message=message, finish_reason=reason, completion_tokens=tokens)


def _call(call: Any) -> ToolCall:
    name, arguments = call.function.name or "", call.function.arguments or "{}"
    return ToolCall(id=call.id, function=FunctionCall(name=clean_text(name), arguments=clean_text(arguments)))


def _usage(answer: Any, library: Any) -> TokenUsage:
    usage = getattr(answer, "usage", None)
    return TokenUsage(
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
        cached_tokens=_count(getattr(usage, "prompt_tokens_details", None), "cached_tokens"),
        reasoning_tokens=_count(getattr(usage, "completion_tokens_details", None), "reasoning_tokens"),
        cost=_cost(answer, library),
    )


def _count(holder: Any, name: str) -> int | None:
    value = getattr(holder, name, None)
    return value if type(value) is int and value >= 0 else None


def _cost(answer: Any, library: Any) -> float | None:
    """What litellm makes of it, in US dollars; None where it has no price."""
    try:
        cost = library.completion_cost(completion_response=answer)
    except Exception:  # noqa: BLE001 - it raises bare Exception for a model that it has no price of
        return None
    return float(cost) if isinstance(cost, int | float) and math.isfinite(cost) and cost > 0 else None
