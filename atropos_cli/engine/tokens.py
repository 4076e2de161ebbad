"""Hang the server's tokens on the messages of a rollout, turn by turn."""

from __future__ import annotations

from atropos_cli.domain.messages import Message, TokenSpan


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
