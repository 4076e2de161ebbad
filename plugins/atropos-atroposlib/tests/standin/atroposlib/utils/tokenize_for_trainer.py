from __future__ import annotations

from typing import Any


def tokenize_for_trainer(tokenizer: Any, chat: Any, train_on_all_assistant_turns: bool = False) -> dict[str, Any]:
    tokens = tokenizer.apply_chat_template(chat)
    masks = [-100] * len(tokens)
    for i, message in enumerate(chat):
        if message["role"] == "assistant" and (train_on_all_assistant_turns or i == len(chat) - 1):
            start = len(tokenizer.apply_chat_template(chat[:i], add_generation_prompt=True))
            end = len(tokenizer.apply_chat_template(chat[: i + 1]))
            masks[start:end] = tokens[start:end]
    return {"tokens": tokens, "masks": masks}
