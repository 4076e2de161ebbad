"""Replies that must be one of given texts, on a tiny random model that would never write them by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import exp, isclose
from typing import Any

import pytest

from atropos_cli.sdk import TokenSpan, user
from atropos_cli.sdk.backends import GenerateRequest, RequestRejected, Sampling

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.model

CHOICES = ("open box", "open box with key", "go east", "go west", "Ähm; 2 × 3?")
END = 257


def ask(n: int = 16, choices: tuple[str, ...] = CHOICES, **sampling: Any) -> GenerateRequest:
    sampling.setdefault("max_tokens", 40)
    return GenerateRequest(messages=(user("What now?"),), n=n, seed=3, sampling=Sampling(**sampling), choices=choices)


def tokens(completion: Any) -> TokenSpan:
    span = completion.message.tokens
    assert isinstance(span, TokenSpan)
    return span


async def test_replies_are_choices_and_their_logprobs_those_of_the_model(
    opened: Any, teacher: Callable[..., list[float]]
) -> None:
    backend = await opened()
    assert backend.capabilities.choices
    generation = await backend.generate(ask(n=24, temperature=3.0))
    texts = [completion.message.text for completion in generation.completions]
    assert set(texts) <= set(CHOICES)
    assert len(set(texts)) > 1
    for completion in generation.completions:
        span = tokens(completion)
        assert completion.finish_reason == "stop"
        assert bytes(await backend.tokenize(completion.message.text)) == bytes(span.ids[:-1])
        assert span.ids[-1] == END
        assert span.logprobs == pytest.approx(teacher(generation.prompt_ids, span.ids), abs=1e-3)
        # "go east": the first token has alternatives ("o", "Ä"), "o", " " have none, the fourth is e or w
        if completion.message.text in ("go east", "go west"):
            assert span.mask == (True, False, False, True, False, False, False, False)
        if completion.message.text == "open box":
            assert span.mask == (True, *[False] * 7, True)  # the end, or " with key"


async def test_choices_are_drawn_by_the_models_own_odds(opened: Any, teacher: Callable[..., list[float]]) -> None:
    backend = await opened()
    generation = await backend.generate(ask(n=400, choices=("a", "b")))
    prompt = generation.prompt_ids
    a, b = [exp(teacher(prompt, tuple(await backend.tokenize(text)))[0]) for text in "ab"]
    counts = Counter(completion.message.text for completion in generation.completions)
    assert isclose(counts["a"] / 400, a / (a + b), abs_tol=0.08)


async def test_greedy_takes_the_likeliest_and_one_choice_is_no_choice(opened: Any) -> None:
    backend = await opened()
    greedy = await backend.generate(ask(n=4, temperature=0.0))
    assert len({completion.message.text for completion in greedy.completions}) == 1
    single = (await backend.generate(ask(n=1, choices=("wait", "wait")))).completions[0]
    assert single.message.text == "wait"
    assert tokens(single).mask == (False,) * 5


async def test_stop_texts_cut_no_choice_and_max_tokens_does(opened: Any) -> None:
    backend = await opened()
    whole = (await backend.generate(ask(n=1, choices=("take key from box",), stop=(" from", "key")))).completions[0]
    assert whole.message.text == "take key from box"
    cut = (await backend.generate(ask(n=1, choices=("take key from box",), max_tokens=4))).completions[0]
    assert (cut.message.text, cut.finish_reason) == ("take", "length")


async def test_truncation_leaves_a_choice_where_none_is_among_the_likeliest(opened: Any) -> None:
    backend = await opened()
    for sampling in ({"top_k": 1}, {"top_p": 0.01}, {"min_p": 0.9}):
        generation = await backend.generate(ask(n=4, **sampling))
        assert {completion.message.text for completion in generation.completions} <= set(CHOICES)


async def test_free_and_held_replies_share_a_batch(opened: Any) -> None:
    import asyncio

    backend = await opened()
    alone = await backend.generate(ask(n=2, choices=(), max_tokens=12))
    held, free = await asyncio.gather(
        backend.generate(ask(n=4, temperature=2.0)), backend.generate(ask(n=2, choices=(), max_tokens=12))
    )
    assert {completion.message.text for completion in held.completions} <= set(CHOICES)
    assert [tokens(one).ids for one in free.completions] == [tokens(one).ids for one in alone.completions]
    assert all(tokens(one).mask is True for one in free.completions)


async def test_a_text_with_an_end_token_is_refused_and_an_empty_one_is_none(opened: Any) -> None:
    backend = await opened()
    with pytest.raises(RequestRejected, match="holds an end token"):
        await backend.generate(ask(n=1, choices=("go", "open <|im_end|> box")))
    empty = (await backend.generate(ask(n=1, choices=("",)))).completions[0]
    assert (empty.message.text, tokens(empty).ids) == ("", (END,))


async def test_a_text_whose_tokens_read_otherwise_is_refused(opened: Any) -> None:
    backend = await opened()
    with pytest.raises(RequestRejected, match=r"cannot reply 'a <.im_start.>user b'"):
        await backend.generate(ask(n=1, choices=("go", "a <|im_start|>user b")))
    half = (await backend.generate(ask(n=1, choices=("\ud800!",)))).completions[0]
    assert half.message.text == "\ufffd!"
