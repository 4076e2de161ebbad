"""Rows of different lengths give what one plain forward pass gives, for several architectures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from atropos_local.decoder import Decoder

from atropos_cli.sdk.backends import FatalBackendError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.model

SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


def build(name: str, config_name: str = "", **changes: Any) -> Any:
    torch.manual_seed(1)
    config = getattr(transformers, config_name or f"{name}Config")(**{**SMALL, **changes})
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def gpt2() -> Any:
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3
    )
    return transformers.GPT2LMHeadModel(config).eval()


ARCHITECTURES: dict[str, Callable[[], Any]] = {
    "llama": lambda: build("Llama"),
    "qwen2": lambda: build("Qwen2"),
    "qwen3": lambda: build("Qwen3"),
    "mistral, window 6": lambda: build("Mistral", sliding_window=6),
    "gemma2, window 6, soft cap": lambda: build("Gemma2", sliding_window=6, attn_implementation="eager"),
    "gemma3, window 6": lambda: build("Gemma3", "Gemma3TextConfig", sliding_window=6),
    "gpt2": gpt2,
}


def decoder_of(model: Any) -> Decoder:
    return Decoder(model, device=torch.device("cpu"), context=64, max_tokens=10**6)


def plain(model: Any, ids: list[int]) -> Any:
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def some_ids(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 99, (length,), generator=generator).tolist()


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_prefill_steps_and_scores_are_those_of_a_plain_pass(name: str) -> None:
    model = ARCHITECTURES[name]()
    decoder = decoder_of(model)
    decoder.check()
    sequences = [some_ids(30, 1), some_ids(22, 2), some_ids(9, 3)]
    starts = [11, 4, 6]
    decoder.prefill(0, [ids[:start] for ids, start in zip(sequences, starts, strict=True)], [0, 0, 0])
    logits = decoder.prefill(0, [ids[s : s + 3] for ids, s in zip(sequences, starts, strict=True)], starts)
    for row, (ids, start) in enumerate(zip(sequences, starts, strict=True)):
        torch.testing.assert_close(logits[row], plain(model, ids)[start + 2], atol=1e-4, rtol=1e-4)
    filled = [start + 3 for start in starts[:2]]
    for step in range(8):
        tokens = [ids[length + step] for ids, length in zip(sequences[:2], filled, strict=True)]
        logits = decoder.step(tokens, [length + step for length in filled])
        for row, length in enumerate(filled):
            expected = plain(model, sequences[row])[length + step]
            torch.testing.assert_close(logits[row], expected, atol=1e-4, rtol=1e-4)
    found = decoder.score(5, [sequences[0][:-1], sequences[1][:-1]], [0, 0], [sequences[0][20:], sequences[1][5:]])
    for values, ids, begin in zip(found, sequences, (20, 5), strict=False):
        table = plain(model, ids).log_softmax(-1)
        expected = [float(table[at - 1, ids[at]]) for at in range(begin, len(ids))]
        assert values == pytest.approx(expected, abs=1e-4)


def test_long_prompts_are_computed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_local.decoder.CHUNK_TOKENS", 8)
    model = build("Llama")
    decoder = decoder_of(model)
    sequences = [some_ids(40, 4), some_ids(33, 5)]
    sizes: list[int] = []
    forward = model.forward

    def watched(*args: Any, **kwargs: Any) -> Any:
        sizes.append(kwargs["input_ids"].numel())
        return forward(*args, **kwargs)

    model.forward = watched
    logits = decoder.prefill(0, sequences, [0, 0])
    found = decoder.score(2, [ids[:-1] for ids in sequences], [0, 0], [ids[-15:] for ids in sequences])
    model.forward = forward
    assert max(sizes) == 8
    for row, ids in enumerate(sequences):
        table = plain(model, ids)
        torch.testing.assert_close(logits[row], table[-1], atol=1e-4, rtol=1e-4)
        expected = [float(table.log_softmax(-1)[at - 1, ids[at]]) for at in range(len(ids) - 15, len(ids))]
        assert found[row] == pytest.approx(expected, abs=1e-4)


def test_a_recurrent_model_is_refused_in_words() -> None:
    torch.manual_seed(0)
    config = transformers.MambaConfig(vocab_size=99, hidden_size=16, num_hidden_layers=2, state_size=4)
    with pytest.raises(FatalBackendError, match=r"linear_attention|Mamba") as caught:
        decoder_of(transformers.MambaForCausalLM(config).eval()).check()
    assert "SGLang" in str(caught.value.hint)


def test_a_model_whose_rows_disagree_is_refused() -> None:
    model = build("Llama")
    decoder = decoder_of(model)
    decoder._windows = {"full_attention": 2}  # a mask that the model does not have by itself
    with pytest.raises(FatalBackendError, match="other logits in batches"):
        decoder.check()
