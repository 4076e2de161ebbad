"""A tiny random model with a byte-level tokenizer, and backends opened on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTEXT = 256

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def byte_tokenizer() -> Any:
    """256 bytes, then <|im_start|> and <|im_end|>, the end of a turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def tiny_llama(**changes: Any) -> Any:
    """A random model whose next-token distributions are far from flat."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    fields = {
        "vocab_size": 258,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.4,
        "bos_token_id": 256,
        "eos_token_id": 257,
        "pad_token_id": 257,
        **changes,
    }
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**fields)).eval()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny model."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama().save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def make_model(tmp_path: Path) -> Callable[..., Any]:
    """`make_model("name", tie_word_embeddings=True)`: a model whose folder is tmp_path / "name"."""

    def make(name: str, **changes: Any) -> Any:
        model = tiny_llama(**changes)
        model.save_pretrained(tmp_path / name)
        byte_tokenizer().save_pretrained(tmp_path / name)
        return model

    return make


@pytest.fixture
async def opened(tiny: Path) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """`await opened(max_batch=4)`: a backend on the tiny model, closed after the test."""
    from atropos_local.backend import LocalBackend, LocalConfig

    backends: list[LocalBackend] = []

    async def open_one(model: str | None = None, **options: Any) -> LocalBackend:
        backend = LocalBackend(LocalConfig(**options), model=model or str(tiny))
        backends.append(backend)
        await backend.open(workers=8, request_timeout=60.0)
        return backend

    yield open_one
    await asyncio.gather(*(backend.close() for backend in backends))


@pytest.fixture(scope="session")
def teacher(tiny: Path) -> Callable[..., list[float]]:
    """`teacher(prefix, continuation)`: log-probabilities by one plain forward pass over the whole sequence."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32).eval()

    def logprobs(prefix: tuple[int, ...], continuation: tuple[int, ...]) -> list[float]:
        ids = torch.tensor([[*prefix, *continuation]])
        with torch.no_grad():
            values = model(ids, use_cache=False).logits[0].log_softmax(-1)
        return [float(values[len(prefix) - 1 + at, token]) for at, token in enumerate(continuation)]

    return logprobs
