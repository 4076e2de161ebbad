"""From the result of an environment to rollouts: its messages beside the requests that it made.

A reply that the engine sampled for exactly the messages before it carries the sampled token ids and logprobs. Edited
replies and rewritten prompts carry none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.foreign.model import Exchange

Key = tuple[tuple[str, str], ...]


class Sampled:
    """The exchanges of a group, found by the conversation. Each is given away once, while there are others."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self._by_key: dict[tuple[Key, str], list[Exchange]] = {}
        self._used: set[int] = set()
        for exchange in exchanges:
            place = (_key(exchange.messages), exchange.completion.message.text.strip())
            self._by_key.setdefault(place, []).append(exchange)

    def of_turn(self, before: Sequence[Message], reply: Message) -> Exchange | None:
        """The exchange that made this reply, or None. Spaces around texts do not count: environments strip them."""
        found = self._by_key.get((_key(before), reply.text.strip()), [])
        fresh = next((item for item in found if id(item) not in self._used), None)
        chosen = fresh or (found[0] if found else None)
        if chosen is not None:
            self._used.add(id(chosen))
        return chosen

    def turns(self, messages: Sequence[Message]) -> dict[int, Exchange]:
        """By the place of each reply that was sampled."""
        found = {}
        for place, message in enumerate(messages):
            if message.role == "assistant" and (exchange := self.of_turn(messages[:place], message)) is not None:
                found[place] = exchange
        return found


def with_spans(
    messages: Sequence[Message], turns: dict[int, Exchange], trained: Collection[int]
) -> tuple[Message, ...] | None:
    """The messages with the engine's tokens; None where a trained reply has none.

    trained: places of the replies to train on. The prompt's ids are in the span of the reply that follows them.
    """
    known: tuple[int, ...] = ()
    made = list(messages)
    for place, exchange in sorted(turns.items()):
        span, prompt = exchange.completion.message.tokens, exchange.generation.prompt_ids
        if span is None or prompt is None:
            if place in trained:
                return None
            continue
        extends = bool(known) and prompt[: len(known)] == known
        before = prompt[len(known) :] if extends else prompt
        learnt = _mask(span) if place in trained else (False,) * len(span.ids)
        tokens = TokenSpan(
            ids=before + span.ids,
            mask=(False,) * len(before) + learnt,
            logprobs=None if span.logprobs is None else (0.0,) * len(before) + span.logprobs,
            restart=not extends,
        )
        update = {"tokens": tokens, "finish_reason": exchange.completion.finish_reason}
        made[place] = messages[place].model_copy(update=update)
        known = prompt + span.ids
    if any(place not in turns for place in trained):
        return None
    return tuple(made)


def joined_branches(
    branches: Sequence[Sequence[Message]], sampled: Sampled
) -> tuple[tuple[Message, ...], tuple[Exchange, ...]]:
    """The conversations of a rollout one after the other, and the exchanges that made its replies, in order.

    A reply in several of them is trained once. One that was not sampled, such as an example of the prompt or a text
    that the environment put in its place, is context.
    """
    messages: list[Message] = []
    seen: dict[int, Exchange] = {}
    for branch in branches:
        turns = sampled.turns(branch)
        fresh = {place: exchange for place, exchange in turns.items() if id(exchange) not in seen}
        seen |= {id(exchange): exchange for exchange in fresh.values()}
        whole = [_as_sampled(message, turns.get(place)) for place, message in enumerate(branch)]
        messages += with_spans(whole, turns, fresh) or whole
    return tuple(messages), tuple(seen.values())


def _as_sampled(message: Message, exchange: Exchange | None) -> Message:
    """A reply with the calls that the server gave: those that were read from its text are in its text."""
    if exchange is None or message.tool_calls is None or exchange.completion.message.tool_calls is not None:
        return message
    return message.model_copy(update={"tool_calls": None})


def _mask(span: TokenSpan) -> tuple[bool, ...]:
    return (span.mask,) * len(span.ids) if isinstance(span.mask, bool) else span.mask


def _key(messages: Sequence[Message]) -> Key:
    return tuple((message.role, message.text.strip()) for message in messages)
