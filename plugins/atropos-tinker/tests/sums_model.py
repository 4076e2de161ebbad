"""A small Qwen3 that knows the form of sums of two digits, and the answers of some: python sums_model.py FOLDER.

It is trained from scratch on sums of which half have a random answer. An adapter has something to start from then, and
something to learn: rewards of a random model are all 0.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

WORDS = ["<pad>", "</s>", *"0123456789+-*= "]
STEPS = 400


def main(folder: Path) -> None:
    """About 20 seconds of one CPU."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    raw.add_special_tokens(["<pad>", "</s>"])
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="</s>")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}</s>{% endif %}{% endfor %}"
    )
    sizes = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4}
    ends = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=len(WORDS),
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        **sizes,
        **ends,
    )
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = random.Random(0)
    for _ in range(STEPS):
        rows = []
        for _ in range(64):
            a, b = rng.randrange(10), rng.randrange(10)
            answer = a + b if rng.random() < 0.5 else rng.randrange(19)
            prompt, reply = tokenizer(f"{a}+{b}=")["input_ids"], [*tokenizer(str(answer))["input_ids"], 1]
            room = 8 - len(prompt) - len(reply)
            rows.append((prompt + reply + [0] * room, [-100] * len(prompt) + reply + [-100] * room))
        ids, labels = (torch.tensor([row[place] for row in rows]) for place in (0, 1))
        loss = model(input_ids=ids, attention_mask=(ids != 0).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
