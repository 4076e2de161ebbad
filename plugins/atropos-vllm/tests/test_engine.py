"""A real vLLM in this process. Runs where vLLM is installed; test_environment.py runs it elsewhere."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import BackendContract
from vllm_support import CONTEXT, byte_tokenizer, greedy_by_torch, logprobs_by_torch, small_llama

from atropos_cli.sdk import ConfigError, user
from atropos_cli.sdk.backends import (
    ContextOverflow,
    FatalBackendError,
    GenerateRequest,
    InferenceBackend,
    RequestRejected,
    Sampling,
)

pytest.importorskip("vllm", reason="vLLM is not installed here")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

torch = pytest.importorskip("torch")

PROMPTS = ("Hi", "What is 2 and 3?", "The same long beginning of a prompt, kept from one request to the next. " * 2)
OPTIONS = {"enforce_eager": True, "max_num_seqs": 16}


def new(model: str | None, **options: Any) -> InferenceBackend:
    from atropos_vllm.backend import VllmBackend, VllmConfig

    return VllmBackend(VllmConfig(**{**OPTIONS, **options}), model=model)


def request(text: str = PROMPTS[0], *, n: int = 1, seed: int | None = 3, **sampling: Any) -> GenerateRequest:
    fields = {"max_tokens": 12, **sampling}
    return GenerateRequest(messages=(user(text),), n=n, seed=seed, sampling=Sampling(**fields))


def ids_of(generation: Any) -> list[tuple[int, ...]]:
    return [completion.message.tokens.ids for completion in generation.completions]


class TestContract(BackendContract):
    """The suite that every backend passes; each test starts an engine."""

    @pytest.fixture(autouse=True)
    def _model(self, folder: Path) -> None:
        self.folder = str(folder)

    def make(self) -> InferenceBackend:
        return new(self.folder)


@pytest.fixture
async def opened(folder: Path) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """`await opened(logprobs="raw")`: a backend on the small model; `adopt=model` beside that module."""
    backends: list[InferenceBackend] = []

    async def open_one(adopt: Any = None, **options: Any) -> InferenceBackend:
        backend = new(str(folder) if adopt is None else "policy", **options)
        if adopt is not None:
            backend.adopt(adopt, byte_tokenizer())
        backends.append(backend)
        await backend.open(workers=8, request_timeout=60.0)
        return backend

    yield open_one
    for backend in backends:
        await backend.close()


def shift(model: Any, amount: float = 0.1) -> None:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * amount)


async def test_it_says_what_the_model_says(opened: Any) -> None:
    """Greedy tokens, sampled log-probabilities and scores are those of transformers."""
    backend, model = await opened(), small_llama(tie_word_embeddings=True)
    made = await asyncio.gather(*(backend.generate(request(text, temperature=0.0)) for text in PROMPTS))
    for generation in made:
        assert ids_of(generation) == [greedy_by_torch(model, generation.prompt_ids, 12)]
    for generation in await asyncio.gather(*(backend.generate(request(text, n=2)) for text in PROMPTS)):
        for completion in generation.completions:
            tokens = completion.message.tokens
            expected = logprobs_by_torch(model, generation.prompt_ids, tokens.ids)
            assert tokens.logprobs == pytest.approx(expected, abs=1e-3)
            scores = await backend.score(generation.prompt_ids, tokens.ids)
            assert scores == pytest.approx(expected, abs=1e-3)
    assert (await backend.score((1,), ())) == []
    assert list(await backend.tokenize("ab")) == byte_tokenizer()("ab")["input_ids"]


async def test_sampling_parameters_do_what_they_say(opened: Any) -> None:
    backend = await opened()
    first, again = [ids_of(await backend.generate(request(n=4))) for _ in range(2)]
    assert first == again
    assert len(set(first)) > 1
    assert ids_of(await backend.generate(request(n=4, seed=1000))) != first
    greedy = ids_of(await backend.generate(request(n=3, temperature=0.0)))
    assert greedy[0] == greedy[1] == greedy[2]
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert ids_of(await backend.generate(request(**narrow))) == greedy[:1], narrow
    bare = await backend.generate(request(temperature=0.0).model_copy(update={"logprobs": "off"}))
    assert (bare.prompt_ids, bare.completions[0].message.tokens) == (None, None)
    assert bare.completions[0].message.text == byte_tokenizer().decode(greedy[0], skip_special_tokens=True)
    unseeded = [ids_of(await backend.generate(request(n=2, seed=None))) for _ in range(3)]
    assert len({tuple(ids) for ids in unseeded}) > 1


async def test_a_reply_ends_at_a_stop_text_at_its_end_token_or_at_the_limit(opened: Any) -> None:
    backend, model = await opened(), small_llama(tie_word_embeddings=True)
    whole = (await backend.generate(request(temperature=0.0, max_tokens=40))).completions[0]
    text = byte_tokenizer().decode(whole.message.tokens.ids)
    at = next(
        place for place, letter in enumerate(text) if place > 2 and letter.isascii() and letter not in text[:place]
    )
    stopped = (await backend.generate(request(temperature=0.0, max_tokens=40, stop=(text[at],)))).completions[0]
    assert (stopped.message.text, stopped.finish_reason) == (text[:at], "stop")
    assert whole.message.tokens.ids[: len(stopped.message.tokens.ids)] == stopped.message.tokens.ids
    short = (await backend.generate(request(temperature=0.0, max_tokens=2))).completions[0]
    assert (short.finish_reason, short.completion_tokens) == ("length", 2)
    sampled = await backend.generate(request(n=16, max_tokens=None, temperature=1.5))
    ended = [c for c in sampled.completions if c.finish_reason == "stop"]
    for completion in ended:
        assert completion.message.tokens.ids[-1] == 257
        assert "<|im_end|>" not in completion.message.text
    assert model.config.eos_token_id == 257


async def test_what_does_not_fit_is_refused(opened: Any) -> None:
    backend = await opened()
    with pytest.raises(ContextOverflow):
        await backend.generate(request("x" * CONTEXT))
    with pytest.raises(ContextOverflow):
        await backend.generate(request(max_tokens=CONTEXT))
    with pytest.raises(ContextOverflow):
        await backend.score([1] * CONTEXT, [1])
    with pytest.raises(RequestRejected, match="vocabulary"):
        await backend.generate(GenerateRequest(prompt_ids=(300,)))
    with pytest.raises(RequestRejected, match="tools"):
        await backend.generate(GenerateRequest(messages=(user("x"),), tools=({"type": "function"},)))
    full = await backend.generate(request(max_tokens=None, temperature=0.0, seed=1))
    assert len(full.prompt_ids) + full.completions[0].completion_tokens <= CONTEXT


async def test_a_cancelled_request_leaves_the_engine(opened: Any) -> None:
    backend = await opened()
    long = asyncio.create_task(backend.generate(request(n=4, max_tokens=200)))
    await asyncio.sleep(0.2)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    await backend.generate(request(max_tokens=1))
    await backend.update_weights(backend.model, version=1)  # would wait for a sample that still ran
    assert not backend._engine.busy


async def test_the_trainers_weights_are_taken_and_given_back_exactly(opened: Any) -> None:
    """Also of the output layer when it is the embedding, and nothing is kept of what old weights computed."""
    model = small_llama(tie_word_embeddings=True)
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    backend = await opened(adopt=model)
    question = request(PROMPTS[2], temperature=0.0)
    before = await backend.generate(question)
    assert ids_of(before) == [greedy_by_torch(model, before.prompt_ids, 12)]
    await backend.update_weights(None, version=1)
    shift(model)
    changed = await backend.generate(question)
    assert ids_of(changed) != ids_of(before)
    assert ids_of(changed) == [greedy_by_torch(model, before.prompt_ids, 12)]
    tokens = changed.completions[0].message.tokens
    assert tokens.logprobs == pytest.approx(logprobs_by_torch(model, before.prompt_ids, tokens.ids), abs=1e-3)
    await backend.update_weights(None, version=2)
    model.load_state_dict(old)
    after = await backend.generate(question)
    assert after == before
    described = backend.describe()
    assert (described["weights_version"], described["weight_handovers"], described["logprobs"]) == (2, 3, "tempered")
    json.dumps(described, allow_nan=False)


async def test_an_adapters_weights_are_merged_into_what_is_sampled_from(opened: Any) -> None:
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(small_llama(), settings).eval()
    backend = await opened(adopt=model)
    plain = await backend.generate(request(PROMPTS[1], temperature=0.0))
    await backend.update_weights(None, version=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    made = await backend.generate(request(PROMPTS[1]))
    tokens = made.completions[0].message.tokens
    assert tokens.logprobs == pytest.approx(logprobs_by_torch(model, made.prompt_ids, tokens.ids), abs=1e-3)
    assert ids_of(await backend.generate(request(PROMPTS[1], temperature=0.0))) != ids_of(plain)


async def test_tempered_logprobs_are_those_of_the_logits_over_the_temperature(opened: Any) -> None:
    model = small_llama(tie_word_embeddings=True)
    backend = await opened(logprobs="tempered")
    made = await backend.generate(request(temperature=0.5))
    tokens = made.completions[0].message.tokens
    expected = logprobs_by_torch(model, made.prompt_ids, tokens.ids, temperature=0.5)
    assert tokens.logprobs == pytest.approx(expected, abs=1e-3)


async def test_weights_from_a_folder(opened: Any, tmp_path: Path) -> None:
    model = small_llama(tie_word_embeddings=True)
    shift(model)
    model.save_pretrained(tmp_path)
    backend = await opened()
    before = await backend.generate(request(PROMPTS[2], temperature=0.0))
    running = [asyncio.create_task(backend.generate(request(text))) for text in PROMPTS]
    await asyncio.sleep(0)
    await backend.update_weights(str(tmp_path), version=7)
    await asyncio.gather(*running)
    made = await backend.generate(request(PROMPTS[2], temperature=0.0))
    assert ids_of(made) != ids_of(before)
    assert ids_of(made) == [greedy_by_torch(model, made.prompt_ids, 12)]
    with pytest.raises(FatalBackendError, match="no model"):
        await backend.update_weights(str(tmp_path / "nothing"), version=8)


async def test_weights_that_the_engine_does_not_know_are_an_error(opened: Any) -> None:
    model = small_llama()
    backend = await opened(adopt=model)
    await backend.generate(request())
    await backend.update_weights(None, version=1)
    del model.model.layers[1].mlp.down_proj
    with pytest.raises(FatalBackendError, match=r"model\.layers\.1\.mlp\.down_proj"):
        await backend.generate(request())


async def test_the_process_keeps_its_random_numbers_and_its_standard_output(
    opened: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    model = small_llama()
    torch.manual_seed(5)
    random.seed(5)
    expected = torch.get_rng_state(), random.getstate()
    backend = await opened(adopt=model)
    await backend.generate(request(n=2))
    assert torch.equal(torch.get_rng_state(), expected[0])
    assert random.getstate() == expected[1]
    assert capfd.readouterr().out == ""


async def test_options_that_vllm_lacks_are_named(opened: Any) -> None:
    with pytest.raises(ConfigError, match="max_nun_seqs"):
        await opened(engine={"max_nun_seqs": 3})
    with pytest.raises(ConfigError, match="there is none"):
        await opened(sleep=True)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="cannot sleep"):
            await opened(adopt=small_llama(), sleep=True)
    with pytest.raises(FatalBackendError, match="did not start"):
        await opened(max_model_len=100_000)


async def test_nothing_can_be_asked_before_open_and_after_close(folder: Path) -> None:
    backend = new(str(folder))
    with pytest.raises(FatalBackendError, match="not open"):
        await backend.generate(request())
    await backend.open()
    running = asyncio.create_task(backend.generate(request(n=4, max_tokens=200)))
    await asyncio.sleep(0.2)
    await backend.close()
    with pytest.raises(Exception, match="closed"):
        await running
    assert await backend.probe() is False
