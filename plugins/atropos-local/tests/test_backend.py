"""The backend on a tiny random model: exactness, batching, cancellation, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.backends import BackendContract

from atropos_cli.sdk import TokenSpan, user
from atropos_cli.sdk.backends import (
    BackendError,
    ContextOverflow,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
    RequestRejected,
    Sampling,
    TransientBackendError,
)

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.model

PROMPTS = ["a", "Count to three.", "x" * 90, "Say something about the sea, please.", "b" * 33]


def ask(text: str = "Hello there", *, seed: int | None = 1, n: int = 1, **sampling: Any) -> GenerateRequest:
    sampling.setdefault("max_tokens", 12)
    return GenerateRequest(messages=(user(text),), n=n, seed=seed, sampling=Sampling(**sampling))


def span(generation: Generation, index: int = 0) -> TokenSpan:
    tokens = generation.completions[index].message.tokens
    assert tokens is not None
    return tokens


def ids_of(generation: Generation) -> list[tuple[int, ...]]:
    return [span(generation, index).ids for index in range(len(generation.completions))]


async def steps(batch: Any, count: int) -> None:
    """Wait until the batch has made so many steps; its thread has no event to wait for."""
    while batch.steps < count:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


class TestContract(BackendContract):
    """What every backend must do."""

    @pytest.fixture(autouse=True)
    def _folder(self, tiny: Path) -> None:
        self.folder = tiny

    def make(self) -> InferenceBackend:
        from atropos_local.backend import LocalBackend, LocalConfig

        return LocalBackend(LocalConfig(), model=str(self.folder))


async def test_logprobs_are_those_of_one_full_pass(opened: Any, teacher: Callable[..., list[float]]) -> None:
    """Alone and in a batch, greedy, hot and truncated: always the raw distribution."""
    backend = await opened(max_batch=8)
    requests = [
        ask(PROMPTS[0], temperature=0.0, max_tokens=30),
        ask(PROMPTS[1], temperature=1.7, max_tokens=25),
        ask(PROMPTS[2], top_p=0.8, n=3),
        ask(PROMPTS[3], top_k=4, min_p=0.05, n=2),
        ask(PROMPTS[4]),
    ]
    answers = [await backend.generate(requests[0]), *await asyncio.gather(*map(backend.generate, requests))]
    for answer in answers:
        assert answer.prompt_ids is not None
        for index in range(len(answer.completions)):
            tokens = span(answer, index)
            assert tokens.mask is True
            assert tokens.logprobs == pytest.approx(teacher(answer.prompt_ids, tokens.ids), abs=1e-4)


async def test_scores_are_those_of_one_full_pass(opened: Any, teacher: Callable[..., list[float]]) -> None:
    backend = await opened()
    prefix = tuple(range(5, 60))
    pairs = [(prefix, (9, 8, 7)), (prefix[:20], tuple(range(100, 180))), (prefix, (1,)), ((3,), (4, 5)), (prefix, ())]
    running = asyncio.create_task(backend.generate(ask(n=4, max_tokens=60, temperature=1.0)))
    for _ in range(2):  # the second time the prefixes are known
        found = await asyncio.gather(*(backend.score(*pair) for pair in pairs))
        for (start, continuation), values in zip(pairs, found, strict=True):
            assert list(values) == pytest.approx(teacher(start, continuation) if continuation else [], abs=1e-4)
    answer = await running
    for index in range(4):
        assert answer.prompt_ids
        tokens = span(answer, index)
        assert tokens.logprobs == pytest.approx(teacher(answer.prompt_ids, tokens.ids), abs=1e-4)


async def test_greedy_does_not_depend_on_the_batch(opened: Any, tiny: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    backend = await opened()
    requests = [ask(text, temperature=0.0, max_tokens=20) for text in PROMPTS]
    alone = [ids_of(await backend.generate(request)) for request in requests]
    together = [ids_of(answer) for answer in await asyncio.gather(*map(backend.generate, requests * 3))]
    assert together == alone * 3
    model = AutoModelForCausalLM.from_pretrained(tiny).eval()
    answer = await backend.generate(requests[1])
    prompt = torch.tensor([answer.prompt_ids])
    with torch.no_grad():
        expected = model.generate(prompt, do_sample=False, max_new_tokens=20)[0, prompt.shape[1] :]
    assert span(answer).ids == tuple(expected.tolist())


async def test_a_seed_gives_the_same_samples_alone_and_in_a_crowd(opened: Any) -> None:
    backend = await opened(max_batch=6)
    request = ask("Once upon a time", seed=7, n=4, max_tokens=20)
    first = ids_of(await backend.generate(request))
    assert len(set(first)) == 4
    crowd = await asyncio.gather(
        *(backend.generate(ask(text, seed=3, n=2)) for text in PROMPTS), backend.generate(request)
    )
    assert ids_of(crowd[-1]) == first
    assert ids_of(await backend.generate(request.replace(n=2))) == first[:2]
    assert ids_of(await backend.generate(request.replace(seed=8))) != first
    other = await opened(max_batch=2, prefix_cache_tokens=0)
    assert ids_of(await other.generate(request)) == first
    unseeded = [ids_of(await backend.generate(request.replace(seed=None))) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


async def test_n_samples_share_one_prefill(opened: Any) -> None:
    backend = await opened(prefix_cache_tokens=0)
    batch = backend._scheduler.batch
    await backend.generate(ask("x" * 60, n=8, max_tokens=1))
    answer = await backend.generate(ask("x" * 60, n=8, max_tokens=1))
    assert batch.computed_tokens == 2 * len(answer.prompt_ids)


async def test_equal_prompts_of_different_requests_share_one_prefill(opened: Any) -> None:
    backend = await opened()
    batch = backend._scheduler.batch
    answers = await asyncio.gather(*(backend.generate(ask("y" * 60, seed=seed, max_tokens=1)) for seed in range(8)))
    prompt = len(answers[0].prompt_ids)
    assert batch.computed_tokens <= prompt + 8  # and at most one position for each that came later
    assert len({ids_of(answer)[0] for answer in answers}) > 1


async def test_a_next_turn_computes_only_what_is_new(opened: Any, teacher: Callable[..., list[float]]) -> None:
    backend = await opened()
    batch = backend._scheduler.batch
    first = await backend.generate(ask("z" * 100))
    before = batch.computed_tokens
    longer = (*first.prompt_ids, *span(first).ids, 1, 2, 3)
    second = await backend.generate(GenerateRequest(prompt_ids=longer, seed=1, sampling=Sampling(max_tokens=4)))
    assert second.prompt_ids == longer
    assert batch.computed_tokens - before <= 3 + 1 + 4
    assert span(second).logprobs == pytest.approx(teacher(longer, span(second).ids), abs=1e-4)


async def test_more_samples_than_rows(opened: Any) -> None:
    backend = await opened(max_batch=3)
    batch = backend._scheduler.batch
    seen = []
    sample = batch._sample
    batch._sample = lambda rows, logits: (seen.append(len(batch.rows)), sample(rows, logits))
    answers = await asyncio.gather(backend.generate(ask(n=8)), backend.generate(ask("b", n=2)))
    assert [len(answer.completions) for answer in answers] == [8, 2]
    assert max(seen) == 3
    wide = await opened(max_batch=32)
    assert ids_of(await wide.generate(ask(n=8))) == ids_of(answers[0])


async def test_the_memory_bound_holds(opened: Any) -> None:
    backend = await opened(max_batch_tokens=512)
    rows = backend._scheduler.batch.decoder.rows
    answers = await asyncio.gather(*(backend.generate(ask("q" * 60, seed=i, max_tokens=60)) for i in range(12)))
    assert all(answer.completions for answer in answers)
    assert rows.capacity[0] * rows.capacity[1] <= 512


async def test_requests_join_a_running_batch(opened: Any) -> None:
    backend = await opened(max_batch=4)
    batch = backend._scheduler.batch
    batch.end_ids = frozenset()
    long = asyncio.create_task(backend.generate(ask(max_tokens=200)))
    await steps(batch, 5)
    short = await backend.generate(ask("b", max_tokens=3))
    assert not long.done()
    assert len(span(short).ids) == 3
    assert len(span(await long).ids) == 200
    assert batch.steps < 200 + 3


async def test_a_cancelled_request_leaves_the_batch(opened: Any) -> None:
    backend = await opened(max_batch=2)
    batch = backend._scheduler.batch
    batch.end_ids = frozenset()
    running = asyncio.create_task(backend.generate(ask(n=2, max_tokens=200)))
    waiting = asyncio.create_task(backend.generate(ask("b", n=2, max_tokens=200)))
    await steps(batch, 3)
    running.cancel()
    waiting.cancel()
    for task in (running, waiting):
        with pytest.raises(asyncio.CancelledError):
            await task
    answer = await backend.generate(ask("c", max_tokens=5))
    assert len(span(answer).ids) == 5
    await backend.score((1,), (2,))  # one more turn of the thread, so that the last row has left
    assert batch.rows == []
    assert batch.steps < 100


async def test_the_end_token_is_in_the_ids_and_not_in_the_text(opened: Any) -> None:
    backend = await opened()
    answers = await asyncio.gather(
        *(backend.generate(ask(text, n=8, temperature=2.0, max_tokens=100)) for text in PROMPTS)
    )
    completions = [completion for answer in answers for completion in answer.completions]
    ended = [completion for completion in completions if completion.finish_reason == "stop"]
    assert ended, "no sample ended by itself; the test needs a hotter model"
    for completion in ended:
        ids = completion.message.tokens.ids
        assert ids[-1] == 257
        assert 257 not in ids[:-1]
        assert "<|im_end|>" not in completion.message.text
        assert completion.message.finish_reason == "stop"
    for completion in completions:
        assert completion.completion_tokens == len(completion.message.tokens.ids)
        if completion.finish_reason == "length":
            assert completion.completion_tokens == 100


async def test_stop_texts_end_a_reply(opened: Any) -> None:
    backend = await opened()
    whole = await backend.generate(ask(max_tokens=40, temperature=0.0))
    text = whole.completions[0].message.text
    stop = text[8:10]
    answer = await backend.generate(ask(max_tokens=40, temperature=0.0, stop=("never there", stop)))
    completion = answer.completions[0]
    assert completion.finish_reason == "stop"
    assert completion.message.text == text[: text.index(stop)]
    ids = span(answer).ids
    assert ids == span(whole).ids[: len(ids)]
    assert stop in backend._prompts.decode(ids)
    assert stop not in backend._prompts.decode(ids[:-1])


async def test_prompts_as_ids_are_used_as_they_are(opened: Any) -> None:
    backend = await opened()
    answer = await backend.generate(GenerateRequest(prompt_ids=(1, 2, 3), sampling=Sampling(max_tokens=2)))
    assert answer.prompt_ids == (1, 2, 3)
    assert answer.prompt_tokens == 3


async def test_texts_are_tokenized_without_special_tokens_added(opened: Any) -> None:
    backend = await opened()
    ids = await backend.tokenize("hé")
    assert backend._prompts.decode(ids) == "hé"
    assert len(ids) == 3
    assert await backend.tokenize("<|im_end|>") == (257,)


async def test_logprobs_off(opened: Any) -> None:
    backend = await opened()
    answer = await backend.generate(ask().replace(logprobs="off"))
    assert answer.completions[0].message.tokens is None
    assert answer.prompt_ids is None
    assert answer.prompt_tokens


async def test_the_context_is_not_overrun(opened: Any) -> None:
    backend = await opened()
    ids = tuple(range(1, 201))
    fits = await backend.generate(GenerateRequest(prompt_ids=ids, sampling=Sampling(max_tokens=56), seed=0))
    assert len(span(fits).ids) <= 56
    with pytest.raises(ContextOverflow, match=r"200 tokens and 57 for the completion; the context holds 256"):
        await backend.generate(GenerateRequest(prompt_ids=ids, sampling=Sampling(max_tokens=57)))
    with pytest.raises(ContextOverflow, match="context holds 256"):
        await backend.generate(GenerateRequest(prompt_ids=ids * 2, sampling=Sampling(max_tokens=None)))
    with pytest.raises(ContextOverflow):
        await backend.score(ids, ids)
    backend._scheduler.batch.end_ids = frozenset()
    rest = await backend.generate(GenerateRequest(prompt_ids=ids, sampling=Sampling(max_tokens=None)))
    assert len(span(rest).ids) == 56
    small = await opened(context=64)
    with pytest.raises(ContextOverflow, match="context holds 64"):
        await small.generate(ask("x" * 100))


async def test_requests_that_cannot_be_served(opened: Any) -> None:
    backend = await opened()
    with pytest.raises(RequestRejected, match="token id 258"):
        await backend.generate(GenerateRequest(prompt_ids=(1, 258)))
    with pytest.raises(RequestRejected, match="token id -1"):
        await backend.score((1,), (-1,))
    with pytest.raises(RequestRejected, match="prompt is empty"):
        await backend.generate(GenerateRequest(prompt_ids=()))
    with pytest.raises(RequestRejected, match="prefix is empty"):
        await backend.score((), (1,))
    with pytest.raises(FatalBackendError, match="shows no tools"):
        await backend.generate(ask().replace(tools=({"type": "function"},)))


async def test_the_plain_template(opened: Any) -> None:
    backend = await opened(chat_template="plain")
    answer = await backend.generate(
        GenerateRequest(messages=(user("1+2=3"), user("4+5=")), sampling=Sampling(max_tokens=1))
    )
    assert backend._prompts.decode(answer.prompt_ids) == "1+2=3\n\n4+5="
    assert backend.describe()["chat_template"] == "plain"


async def test_a_failing_batch_takes_only_its_own_requests_down(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = await opened()
    batch = backend._scheduler.batch
    batch.end_ids = frozenset()
    decoder, prefill = batch.decoder, batch.decoder.prefill
    running = asyncio.create_task(backend.generate(ask(max_tokens=100)))
    await steps(batch, 3)

    def broken(*args: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(decoder, "prefill", broken)
    rows = batch.max_rows
    with pytest.raises(TransientBackendError, match="out of memory") as caught:
        await backend.generate(ask("b"))
    assert "--backend.max-batch" in str(caught.value.hint)
    assert batch.max_rows == rows // 2
    monkeypatch.setattr(decoder, "prefill", prefill)
    assert len(span(await running).ids) == 100
    assert await backend.probe()


async def test_a_failing_step_ends_the_running_requests_and_the_next_ones_work(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await opened()
    expected = ids_of(await backend.generate(ask(n=2)))
    decoder = backend._scheduler.batch.decoder
    step = decoder.step

    def broken(*args: Any) -> Any:
        monkeypatch.setattr(decoder, "step", step)
        raise ValueError("surprise")

    monkeypatch.setattr(decoder, "step", broken)
    with pytest.raises(BackendError, match="ValueError: surprise"):
        await backend.generate(ask(n=2))
    assert ids_of(await backend.generate(ask(n=2))) == expected


async def test_logits_that_are_not_numbers(opened: Any) -> None:
    import torch

    backend = await opened()
    with torch.no_grad():
        backend._scheduler.batch.decoder.model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(BackendError, match="not finite numbers"):
        await backend.generate(ask())


async def test_closing_answers_whoever_waits(opened: Any) -> None:
    backend = await opened(max_batch=1)
    batch = backend._scheduler.batch
    batch.end_ids = frozenset()
    tasks = [asyncio.create_task(backend.generate(ask(max_tokens=200, seed=seed))) for seed in range(3)]
    await steps(batch, 3)
    scheduler = backend._scheduler
    await backend.close()
    for task in tasks:
        with pytest.raises(BackendError, match="closed"):
            await task
    assert not scheduler._thread.is_alive()
    assert await backend.probe() is False
    with pytest.raises(FatalBackendError, match="not open"):
        await backend.generate(ask())
    await backend.close()


async def test_opening_that_is_given_up(tiny: Path) -> None:
    from atropos_local.backend import LocalBackend, LocalConfig

    backend = LocalBackend(LocalConfig(), model=str(tiny))
    task = asyncio.create_task(backend.open())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await backend.close()
    assert await backend.probe() is False


async def test_the_description(opened: Any, tiny: Path) -> None:
    facts = (await opened(threads=1)).describe()
    assert facts["model"] == tiny.name
    assert (facts["device"], facts["dtype"], facts["context"], facts["logprobs"]) == ("cpu", "float32", 256, "raw")
    assert facts["threads"] == 1
    assert str(tiny.parent) not in str(facts)


async def test_other_number_formats(opened: Any) -> None:
    """bfloat16 runs, and its logprobs are close to those of the same weights in float32."""
    coarse, fine = await opened(dtype="bfloat16"), await opened()
    assert coarse.describe()["dtype"] == "bfloat16"
    answer = await coarse.generate(ask(n=2))
    for index in range(2):
        tokens = span(answer, index)
        assert tokens.logprobs == pytest.approx(await fine.score(answer.prompt_ids, tokens.ids), abs=0.5)
