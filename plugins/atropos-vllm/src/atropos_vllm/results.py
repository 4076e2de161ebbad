"""What vLLM answers, as values of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.sdk.backends import BackendError


@dataclass(frozen=True, slots=True)
class Sample:
    """One finished request of the engine. prompt_logprobs: of all prompt tokens but the first, if asked for."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    finish_reason: str | None
    prompt_logprobs: tuple[float, ...] | None = None


def read_output(output: Any) -> Sample:
    """A finished RequestOutput of one sample. Raises BackendError for one that the engine gave up."""
    (completion,) = output.outputs
    ids = tuple(completion.token_ids)
    if completion.finish_reason not in ("stop", "length"):
        raise BackendError(f"vLLM ended a request with {completion.finish_reason!r}")
    logprobs = None if completion.logprobs is None else _of(completion.logprobs, ids)
    scored = None
    if output.prompt_logprobs is not None:
        scored = _of(output.prompt_logprobs[1:], output.prompt_token_ids[1:])
    return Sample(ids, logprobs, completion.finish_reason, scored)


def _of(entries: Sequence[Mapping[int, Any]], ids: Sequence[int]) -> tuple[float, ...]:
    """The values of the tokens themselves; vLLM may put more likely ones beside them."""
    return tuple(entry[token].logprob for entry, token in zip(entries, ids, strict=True))
