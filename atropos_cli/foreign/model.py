"""The engine's model for a foreign environment: requests in OpenAI's terms, and which replies were sampled for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.base import clean_text
from atropos_cli.domain.finish import finish_of
from atropos_cli.domain.messages import FunctionCall, Message, ToolCall
from atropos_cli.domain.plan import Sampling
from atropos_cli.errors import RequestRejected
from atropos_cli.foreign.data import Data
from atropos_cli.ports.backend import Completion, Generation
from atropos_cli.ports.environment import GroupContext
from atropos_cli.text.toolcalls import parse_tool_calls

_ROLES = {"system", "developer", "user", "assistant", "tool"}
_REASONING = ("reasoning_content", "reasoning")
_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "stop")
_NOT_OURS = frozenset(
    {"model", "n", "messages", "tools", "prefill", "split", "stream", "user", "timeout", "ask", "id", "kind"}
)
"""Fields of a request that mean nothing here, or have a place of their own."""
MOST_REPLIES = 10_000
"""To one request: a slip in a number must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and one of its completions."""

    messages: tuple[Message, ...]
    generation: Generation
    completion: Completion


@dataclass(slots=True)
class EngineModel:
    """Answers the requests of one group, and remembers them.

    own_sampling: do temperature, lengths and stops that the environment asks for count, or those of the run?
    left_out: fields of requests that the engine has no use for. number: of the rollout, where this model serves one
    alone: the seeds of its requests then depend on nothing that other rollouts do.

    Calls of tools that a server left in the text of a reply are read for the environment. as_sampled() takes them out
    of the reply again: where the chat template shows calls, the model would see them twice.
    """

    context: GroupContext
    own_sampling: bool = True
    number: int | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    left_out: set[str] = field(default_factory=set)
    _read: set[str] = field(default_factory=set)
    _calls_read: int = 0

    async def chat(self, request: Mapping[str, Any], *, role: str | None = None) -> Data:
        """The answer to a chat request, in OpenAI's shape, with token ids. Raises RequestRejected, BackendError.

        A reply that begins with `prefill` is given whole. role: whose model answers instead of the policy; its replies
        are not among the exchanges, so they are never trained on.
        """
        messages = tuple(self.as_sampled(message_of(item)) for item in request.get("messages") or ())
        if not messages:
            raise RequestRejected("a request to the model without messages")
        n = int(request.get("n") or 1)
        if not 0 < n <= MOST_REPLIES:
            raise RequestRejected(f"the environment asks for {n} replies at once; 1 to {MOST_REPLIES} are possible")
        tools = request.get("tools") or None
        if role is not None:
            completions = await self.context.models[role].generate(messages, n=n, tools=tools)
            return {"choices": [self._choice(completion, None, tools) for completion in completions], "usage": {}}
        sampling, prefill = self._sampling(request), str(request.get("prefill") or "")
        seed = None if self.number is None else self._seed(len(messages))
        generations = await self.context.sample(
            messages, n=n, sampling=sampling, tools=tools, prefill=prefill, seed=seed
        )
        choices: list[Data] = []
        for generation in generations:
            for completion in generation.completions:
                self.exchanges.append(Exchange(messages, generation, completion))
                choices.append(self._choice(completion, generation, tools))
        return {"choices": choices, "usage": _usage(generations)}

    def _choice(self, completion: Completion, generation: Generation | None, tools: Any) -> Data:
        """generation: whose prompt's token ids are given along."""
        message, reason = completion.message, finish_of(completion.finish_reason) or "stop"
        calls = self._calls(message, tools)
        choice: Data = {
            "content": message.text, "finish_reason": "tool_calls" if calls and reason == "stop" else reason
        }  # fmt: skip
        if message.reasoning is not None:
            choice["reasoning"] = message.reasoning
        if calls:
            choice["tool_calls"] = calls
        span = message.tokens
        if generation is not None and span is not None and generation.prompt_ids is not None:
            choice["prompt_ids"] = list(generation.prompt_ids)
            choice["ids"] = list(span.ids)
            choice["logprobs"] = None if span.logprobs is None else list(span.logprobs)
        return choice

    def _calls(self, reply: Message, tools: Any) -> list[Data]:
        """The calls of a reply, with ids of their own: the server's, else those that are written in its text."""
        calls: Sequence[ToolCall] = reply.tool_calls or ()
        if tools and not calls:
            parse = parse_tool_calls(reply.text, "auto", tools=tools)
            if parse.status == "ok":
                calls = [call.as_tool_call("") for call in parse.calls]
                self._read.add(reply.text.strip())
        made = []
        for call in calls:
            made.append({**call.model_dump(mode="json"), "id": call.id or f"call_{self._calls_read}"})
            self._calls_read += 1
        return made

    def as_sampled(self, message: Message) -> Message:
        """A reply whose calls were read from its text as it came: the text says them."""
        if message.role == "assistant" and message.tool_calls and message.text.strip() in self._read:
            return message.model_copy(update={"tool_calls": None})
        return message

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Log-probabilities of the tokens, each after all before it; the first one's is 0."""
        if len(ids) < 2:
            return [0.0] * len(ids)
        return [0.0, *await self.context.score_logprobs(tuple(ids[:1]), tuple(ids[1:]))]

    def _seed(self, messages: int) -> int:
        asked = f"{self.context.seed}/{self.number}/{messages}/{len(self.exchanges)}"
        return int.from_bytes(blake2b(asked.encode(), digest_size=4).digest(), "big") >> 1

    def _sampling(self, request: Mapping[str, Any]) -> Sampling:
        extra = request.get("extra_body")
        asked = {**(extra if isinstance(extra, dict) else {}), **request}
        if (most := asked.get("max_completion_tokens")) is not None:
            asked.setdefault("max_tokens", most)
        known = {*_SAMPLING, *_NOT_OURS, "extra_body", "max_completion_tokens"}
        self.left_out |= {key for key, value in asked.items() if value is not None and key not in known}
        if not self.own_sampling:
            return self.context.sampling
        changes = {name: asked[name] for name in _SAMPLING if asked.get(name) is not None}
        if isinstance(changes.get("stop"), str):
            changes["stop"] = (changes["stop"],)
        if (most := changes.get("max_tokens")) is not None and most < 1:
            del changes["max_tokens"]  # -1: no limit, in some servers
        try:
            return Sampling.model_validate({**self.context.sampling.model_dump(), **changes})
        except ValidationError as error:
            raise RequestRejected(
                f"the environment asks for impossible sampling: {error.errors()[0]['msg']}"
            ) from error


def message_of(item: Any) -> Message:
    """A message in OpenAI's shape as ours. Raises RequestRejected."""
    if not isinstance(item, Mapping) or item.get("role") not in _ROLES:
        raise RequestRejected(f"a message without a known role: {str(item)[:80]}")
    content = item.get("content")
    if isinstance(content, list):
        content = tuple(part for part in content if isinstance(part, dict))
    elif content is not None:
        content = clean_text(str(content))
    calls = tuple(_call(call) for call in item.get("tool_calls") or () if isinstance(call, Mapping))
    name, call_id = item.get("name"), item.get("tool_call_id")
    reasoning = next((item[key] for key in _REASONING if isinstance(item.get(key), str)), None)
    return Message(
        role=item["role"],
        content=content,
        reasoning=None if reasoning is None else clean_text(reasoning),
        tool_calls=calls or None,
        tool_call_id=None if call_id is None else str(call_id),
        name=None if name is None else str(name),
    )


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function")
    function = function if isinstance(function, Mapping) else {}
    named = FunctionCall(name=str(function.get("name", "")), arguments=clean_text(str(function.get("arguments", "{}"))))
    return ToolCall(id=None if call.get("id") is None else str(call["id"]), function=named)


def _usage(generations: Iterable[Generation]) -> Data:
    prompt = completion = 0
    for generation in generations:
        prompt += generation.prompt_tokens or 0
        completion += sum(item.completion_tokens or 0 for item in generation.completions)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def number_of(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
