"""A backend whose replies come from `reply_rule`, with tokens of the model's tokenizer, as `local` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import reply_rule

from atropos_cli.sdk.backends import Capabilities, GenerateRequest, Generation, InferenceBackend
from atropos_cli.sdk.models import Prompts, StopText, completion_of


@dataclass(frozen=True)
class Sampled:
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    finish_reason: str | None = "stop"


class Rule(InferenceBackend):
    """model: a folder with a tokenizer."""

    name: ClassVar[str] = "rule"

    def __init__(self, config: object = None, *, model: str | None = None) -> None:
        super().__init__(config, model=model)
        self.capabilities = Capabilities(logprobs=True, token_ids=True, tools=True, n=True)

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        from transformers import AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(self.model)
        self._prompts = Prompts(self._tokenizer)

    async def generate(self, request: GenerateRequest) -> Generation:
        prompt = request.prompt_ids or self._prompts.encode(request.messages, request.prefill, request.tools)
        text = reply_rule.reply(self._tokenizer.decode(list(prompt), skip_special_tokens=False))
        ids = [*self._prompts.ids(text), self._tokenizer.eos_token_id][: request.sampling.max_tokens]
        sample = Sampled(tuple(ids), tuple(reply_rule.logprobs(ids)))
        stop = StopText(self._prompts, request.sampling.stop)
        completion = completion_of(sample, self._prompts, stop, with_tokens=True)
        return Generation(completions=(completion,) * request.n, prompt_ids=tuple(prompt), prompt_tokens=len(prompt))
