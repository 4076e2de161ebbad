"""Rewards that shape length and repetition, and wrappers that scale another reward by length."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, Literal

from atropos_cli.sdk import ConfigError, Reward, Rollout, Task, normal_text, word_grams, words
from atropos_verify.errors import VerifierError

Unit = Literal["tokens", "words", "chars"]


def completion_length(rollout: Rollout, unit: Unit = "tokens") -> int:
    """Length of what the model wrote: all its tokens, or the words or characters of its last message.

    Tokens are the ones the server counted; without them a length in tokens is an error, not a guess.
    """
    if unit == "words":
        return len(words(rollout.text))
    if unit == "chars":
        return len(rollout.text)
    if rollout.usage.completion_tokens is not None:
        return rollout.usage.completion_tokens
    spans = [message.tokens for message in rollout.messages if message.role == "assistant"]
    if not spans or any(span is None for span in spans):
        raise VerifierError(
            "the number of tokens of this rollout is not known: the server sent no usage",
            hint="use unit='words' or unit='chars'",
        )
    # A span may hold its prompt's ids too, untrained.
    return sum(len(span.ids) if isinstance(span.mask, bool) else sum(span.mask) for span in spans if span is not None)


def soft_overlong_penalty(length: float, max_length: float, cache: float) -> float:
    """DAPO's overlong shaping (arXiv 2503.14476, Eq. 13): 0, then linear over the last `cache`, then -1."""
    if length <= max_length - cache:
        return 0.0
    if length >= max_length:
        return -1.0
    return (max_length - cache - length) / cache


def length_adjusted_score(score: float, length: float, baseline: float, scale: float, cap: float) -> float:
    """score + |score| * clamp((baseline - length) * scale, -cap, cap): a longer reply is never better."""
    return score + abs(score) * max(-cap, min(cap, (baseline - length) * scale))


def cosine_scaled_score(
    correct: bool, length: float, max_length: float, right: Sequence[float], wrong: Sequence[float]
) -> float:
    """A cosine from the short to the long value: right=(1.0, 0.5) prefers short, wrong=(-1.0, -0.5) long replies."""
    short, long = right if correct else wrong
    progress = min(1.0, max(0.0, length / max_length))
    return long + 0.5 * (short - long) * (1.0 + math.cos(math.pi * progress))


def repeated_share(text: str, n: int) -> float:
    """The share of n-grams of words that repeat an earlier one; 0.0 with fewer than n words.

    In scripts without blanks an n-gram has as many signs as n words have on average.
    """
    grams = list(word_grams(words(normal_text(text)), n))
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0


def soft_overlong_reward(
    max_length: int = 20480, cache: int = 4096, *, unit: Unit = "tokens", name: str = "soft_overlong"
) -> Reward:
    """0.0 up to max_length - cache, falling to -1.0 at max_length and beyond."""
    if not 0 <= cache <= max_length or max_length < 1:
        raise ConfigError(f"max_length={max_length}, cache={cache}: the cache is a part of the length")

    def score(task: Task, rollout: Rollout) -> float:
        return soft_overlong_penalty(completion_length(rollout, unit), max_length, cache)

    score.__doc__ = "0 to -1 over the last part of the allowed length"
    return Reward(score, name=name)


def length_penalty_reward(
    free: int = 1024, full: int = 2048, *, unit: Unit = "tokens", name: str = "length_penalty"
) -> Reward:
    """0.0 up to `free`, falling to -1.0 at `full`."""
    if not 0 <= free < full:
        raise ConfigError(f"free={free}, full={full}: give 0 <= free < full")
    return soft_overlong_reward(full, full - free, unit=unit, name=name)


def repetition_penalty_reward(n: int = 4, max_penalty: float = 1.0, *, name: str = "repetition_penalty") -> Reward:
    """-max_penalty times the share of repeated n-grams of words in the reply."""
    if n < 1 or not 0 < max_penalty < math.inf:
        raise ConfigError(f"n={n}, max_penalty={max_penalty}: both must be above 0")

    def score(task: Task, rollout: Rollout) -> float:
        return -max_penalty * repeated_share(rollout.text, n)

    score.__doc__ = "minus the share of repeated word sequences"
    return Reward(score, name=name)


async def value_of(inner: Reward, task: Task, rollout: Rollout) -> float:
    """What another reward says; waits for it if it is asynchronous. A value that is not finite is an error."""
    result: Any = inner(task, rollout)
    value = float(await result if inspect.isawaitable(result) else result)
    if not math.isfinite(value):
        raise VerifierError(f"reward {inner.name} is {value}, not a finite number")
    return value


def cosine_scaled(
    inner: Reward,
    *,
    max_length: int = 1024,
    right: tuple[float, float] = (1.0, 0.5),
    wrong: tuple[float, float] = (-1.0, -0.5),
    unit: Unit = "tokens",
    name: str | None = None,
) -> Reward:
    """Scale a verdict by length: (value when short, value when long) for right and for wrong replies.

    A reply is right when `inner` gives at least 0.5. Beyond max_length the long value stays.
    """
    _single(inner)
    if max_length < 1:
        raise ConfigError(f"max_length={max_length}: give at least 1")

    async def score(task: Task, rollout: Rollout) -> float:
        correct = await value_of(inner, task, rollout) >= 0.5
        return cosine_scaled_score(correct, completion_length(rollout, unit), max_length, right, wrong)

    score.__doc__ = f"{inner.name}, scaled by length along a cosine"
    return Reward(score, name=name or f"cosine_{inner.name}", extract=inner.extract)


def length_adjusted(
    inner: Reward,
    *,
    baseline: int = 500,
    scale: float = 0.0002,
    cap: float = 0.1,
    unit: Unit = "tokens",
    name: str | None = None,
) -> Reward:
    """A reward raised for replies shorter than `baseline` and lowered for longer ones, by at most cap * |reward|."""
    _single(inner)
    if scale < 0 or not 0 <= cap <= 1:
        raise ConfigError(f"scale={scale}, cap={cap}: give scale >= 0 and 0 <= cap <= 1")

    async def score(task: Task, rollout: Rollout) -> float:
        value = await value_of(inner, task, rollout)
        return length_adjusted_score(value, completion_length(rollout, unit), baseline, scale, cap)

    score.__doc__ = f"{inner.name}, adjusted by length"
    return Reward(score, name=name or f"{inner.name}_by_length", extract=inner.extract)


def _single(inner: Reward) -> None:
    if inner.kind != "rollout":
        raise ConfigError(f"reward {inner.name!r} scores whole groups and cannot be wrapped")


length_penalty = length_penalty_reward()
repetition_penalty = repetition_penalty_reward()
soft_overlong = soft_overlong_reward()
