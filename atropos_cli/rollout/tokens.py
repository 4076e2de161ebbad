"""Hang the server's tokens on the messages of a rollout, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.domain.tokendata import ids_fault, logprobs_fault
from atropos_cli.errors import BackendError
from atropos_cli.ports.backend import Completion, Generation


class TokenTrail:
    """The token ids of one rollout so far, as the server counted them.

    Each prompt is compared with what came before: what it adds belongs to the messages added since. A
    prompt that does not extend the earlier ids (a template that rewrites history) starts a new sequence.
    """

    def __init__(self) -> None:
        self._ids: tuple[int, ...] | None = ()

    def prompt_span(self, prompt_ids: tuple[int, ...] | None) -> TokenSpan | None:
        """The span of the last prompt message; None when the server gave no ids."""
        if prompt_ids is None:
            self._ids = None
            return None
        known = self._ids
        self._ids = prompt_ids
        if known is not None and prompt_ids[: len(known)] == known:
            return TokenSpan(ids=prompt_ids[len(known) :])
        return TokenSpan(ids=prompt_ids, restart=True)

    def extend(self, message: Message) -> None:
        """Take up the sampled tokens of a reply."""
        if self._ids is None:
            return
        self._ids = None if message.tokens is None else self._ids + message.tokens.ids


def with_prompt(generation: Generation, messages: Sequence[Message]) -> list[Completion]:
    """The completions, each with the prompt's ids before its own in the span of its message.

    So an environment that puts its rollouts together itself loses no token. What the messages carry already is not
    repeated; a prompt that does not extend it begins a new sequence.
    """
    prompt_ids = generation.prompt_ids
    if prompt_ids is None:
        return list(generation.completions)
    known = known_ids(messages)
    extends = bool(known) and prompt_ids[: len(known)] == known
    before = prompt_ids[len(known) :] if extends else prompt_ids
    made = []
    for completion in generation.completions:
        message = completion.message
        span = message.tokens
        if span is not None:
            mask = (span.mask,) * len(span.ids) if isinstance(span.mask, bool) else span.mask
            whole = TokenSpan(
                ids=before + span.ids,
                mask=(False,) * len(before) + mask,
                logprobs=None if span.logprobs is None else (0.0,) * len(before) + span.logprobs,
                restart=not extends,
                version=span.version,
            )
            message = message.model_copy(update={"tokens": whole})
            completion = completion.model_copy(update={"message": message})
        made.append(completion)
    return made


def of_version(generation: Generation, version: int) -> Generation:
    """The generation, its sampled spans marked with the version of the weights."""

    def marked(completion: Completion) -> Completion:
        span = completion.message.tokens
        if span is None:
            return completion
        tokens = span.model_copy(update={"version": version})
        return completion.model_copy(update={"message": completion.message.model_copy(update={"tokens": tokens})})

    return generation.model_copy(update={"completions": tuple(map(marked, generation.completions))})


def known_ids(messages: Sequence[Message]) -> tuple[int, ...]:
    """The ids that the messages' spans hold together, from the last one that begins a sequence on."""
    ids: tuple[int, ...] = ()
    for message in messages:
        if message.tokens is not None:
            ids = message.tokens.ids if message.tokens.restart else ids + message.tokens.ids
    return ids


def checked_ids(ids: Sequence[int], backend: str) -> Sequence[int]:
    """The ids a backend gave for a text. Raises BackendError for anything else."""
    if (fault := ids_fault(ids)) is not None:
        raise BackendError(f"backend {backend!r} gave something other than token ids for a text: {fault}")
    return ids


def checked_logprobs(values: Sequence[float], count: int, backend: str) -> Sequence[float]:
    """The scores a backend gave for `count` tokens. Raises BackendError for anything else."""
    if len(values) != count:
        raise BackendError(f"backend {backend!r} gave {len(values)} log-probabilities for {count} tokens")
    if (fault := logprobs_fault(values)) is not None:
        raise BackendError(f"backend {backend!r} gave a value that is not a finite log-probability: {fault}")
    return values
