"""A small random model that vLLM takes (heads of 64), a tokenizer of bytes, and what transformers says of them."""

from __future__ import annotations

from typing import Any

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTEXT = 256
SIZES = {
    "vocab_size": 258,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.2,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 257,
}


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


def small_llama(**changes: Any) -> Any:
    """A random model whose next-token distributions are far from flat."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})).eval()


def logprobs_by_torch(model: Any, prefix: Any, continuation: Any, temperature: float = 1.0) -> list[float]:
    """One plain forward pass over the whole sequence."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([[*prefix, *continuation]]), use_cache=False).logits[0].float() / temperature
    values = logits.log_softmax(-1)
    return [float(values[len(prefix) - 1 + at, token]) for at, token in enumerate(continuation)]


def greedy_by_torch(model: Any, prefix: Any, tokens: int) -> tuple[int, ...]:
    """The most likely continuation, each token by a pass over all before it."""
    import torch

    ids = list(prefix)
    for _ in range(tokens):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        if ids[-1] == 257:
            break
    return tuple(ids[len(prefix) :])
