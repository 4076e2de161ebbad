"""From the result of an environment to rollouts: its messages beside the requests that it made.

A reply that the engine sampled for exactly the messages before it carries the sampled token ids and logprobs. Edited
replies and rewritten prompts carry none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.domain.rollout import Usage
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
        messages += with_spans(branch, turns, fresh) or branch
    return tuple(messages), tuple(seen.values())


def usage_of(exchanges: Sequence[Exchange]) -> Usage:
    """Of the requests behind them; None where no server counted."""
    prompts = [n for item in exchanges if (n := item.generation.prompt_tokens) is not None]
    replies = [n for item in exchanges if (n := item.completion.completion_tokens) is not None]
    return Usage(
        prompt_tokens=sum(prompts) if prompts else None,
        completion_tokens=sum(replies) if replies else None,
        requests=len(exchanges),
    )


def shared_prompt(conversations: Iterable[Sequence[Message]]) -> tuple[Message, ...]:
    """The messages before the first reply, where all conversations that have any begin with the same."""
    shared: list[Message] = []
    for place in zip(*(messages for messages in conversations if messages), strict=False):
        first = place[0]
        if first.role == "assistant" or any(item.role != first.role or item.content != first.content for item in place):
            break
        shared.append(first.model_copy(update={"tokens": None}))
    return tuple(shared)


def _mask(span: TokenSpan) -> tuple[bool, ...]:
    return (span.mask,) * len(span.ids) if isinstance(span.mask, bool) else span.mask


def _key(messages: Sequence[Message]) -> Key:
    return tuple((message.role, message.text.strip()) for message in messages)
