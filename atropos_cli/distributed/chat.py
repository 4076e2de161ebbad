"""The tokens of a conversation that grows, under a trainer's own Python: as `models.prompts` makes them here.

It is copied into the run beside `inside`: standard library only. What was sampled stays as it was sampled; a request
whose text does not begin with all that is known begins a sequence of its own.
"""

from __future__ import annotations

import json
import threading
from typing import Any


class NoPrompt(RuntimeError):
    """The chat template cannot make a prompt of these messages."""


class Chat:
    """One tokenizer of transformers, with its chat template. more: keyword arguments of the template."""

    def __init__(self, tokenizer: Any, more: dict[str, Any] | None = None) -> None:
        self._tokenizer, self._more = tokenizer, more or {}
        self._lock = threading.Lock()  # fast tokenizers are for one thread at a time
        ends = tokenizer.eos_token_id
        self.ends: set[int] = set(ends) if isinstance(ends, list) else {ends}

    @property
    def takes_tools(self) -> bool:
        """Does the template show tools to the model? One that does not name them leaves them out."""
        return "tools" in str(self._tokenizer.chat_template)

    def request(self, messages: list[dict[str, Any]], tools: Any, known: list[int]) -> tuple[list[int], bool]:
        """The ids of a request, and whether they extend the known ones. Raises NoPrompt."""
        text = self._render(messages, tools)
        with self._lock:
            if known:
                decoded = self._decode(known, skip=False)
                if text.startswith(decoded):
                    return [*known, *self._ids(text[len(decoded) :])], True
            return self._ids(text), False

    def text(self, ids: list[int]) -> str:
        """The text of sampled ids, without special tokens."""
        with self._lock:
            return self._decode(ids, skip=True)

    def _render(self, messages: list[dict[str, Any]], tools: Any) -> str:
        if not self._tokenizer.chat_template:
            raise NoPrompt("the model has no chat template")
        if tools and not self.takes_tools:
            raise NoPrompt("the model's chat template shows no tools to the model; --env.tools-in prompt does")
        turns = [_turn(message) for message in messages]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    turns, tools=tools or None, tokenize=False, add_generation_prompt=True, **self._more
                )
            )
        except Exception as error:  # a template raises whatever its author chose
            roles = ", ".join(str(message["role"]) for message in messages)
            raise NoPrompt(
                f"the chat template refuses these messages (roles: {roles}): {type(error).__name__}: {error}"
            ) from error

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _decode(self, ids: list[int], *, skip: bool) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))


def _turn(message: dict[str, Any]) -> dict[str, Any]:
    """A message as chat templates expect it: tool arguments as objects."""
    calls = [
        {**call, "function": {**call["function"], "arguments": _arguments(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or []
    ]
    return {**message, "tool_calls": calls} if calls else message


def _arguments(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError):
        return text
