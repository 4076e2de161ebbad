"""Request bodies for /v1/chat/completions and /v1/completions, and which optional fields go into them.

No stream is ever asked for: a rollout needs whole answers, and a whole answer says whether it is whole.

A reply of history without a text has one form: `"content": null` beside tool calls, as OpenAI, vLLM, SGLang and
llama.cpp have it and as some templates ask for it (`content is none`), and "" without any. A server that complains of
the null (older llama.cpp, TGI, Ollama, templates that join texts) gets "" from then on. Prompts that are rendered here
(the completions endpoint, models in process) have "" everywhere: most templates would print "None".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from atropos_cli.builtin.openai.errors import ErrorWords
from atropos_cli.builtin.openai.prompt import Prompt
from atropos_cli.sdk import JsonDict, Message, clean_text, parse_tool_calls
from atropos_cli.sdk.backends import GenerateRequest

PREFILL_FIELDS = ("continue_final_message", "add_generation_prompt")

_NULL_REFUSED = re.compile(
    r"content\b.{0,120}(null|none|nil\b|string|str\b|missing|required|must|valid|empty|type|variant)"
    r"|(null|none|nil\b|missing|required|invalid|empty).{0,80}content|NoneType|untagged enum|data did not match",
    re.IGNORECASE | re.DOTALL,
)
_NO_PARSER = re.compile(r"enable-auto-tool-choice|tool[ _-]call[ _-]parser", re.IGNORECASE)
# Dropped one by one, in this order, when the server complains about one of them.
_DROPPABLE = ("return_token_ids", "logprobs", "seed")


@dataclass(slots=True)
class RequestFields:
    """Which optional fields this server takes; learnt from its complaints.

    dropped: fields it refused, with its words. logprobs_value: what `logprobs` is in a completions request.
    no_null_content: it refused `"content": null` beside tool calls.
    no_tool_choice: it has no tool parser (vLLM), and takes tools only where it need not look for calls.
    """

    max_tokens: str = "max_tokens"
    logprobs_value: int = 1
    dropped: dict[str, str] = field(default_factory=dict)
    no_null_content: bool = False
    no_tool_choice: bool = False

    def learn(self, words: ErrorWords, body: dict[str, Any]) -> bool:
        """Take up a complaint about a field of this body; True when the request is worth sending without it."""
        for name in _DROPPABLE:
            if name in body and words.names_unsupported(name):
                self.dropped[name] = words.message
                return True
        if "max_tokens" in body and "max_completion_tokens" in words.message and self.max_tokens == "max_tokens":
            self.max_tokens = "max_completion_tokens"
            return True
        if "tools" in body and "tool_choice" not in body and _NO_PARSER.search(words.everything):
            self.no_tool_choice = True
            return True
        return self.learn_content(words, body)

    def learn_content(self, words: ErrorWords, body: dict[str, Any]) -> bool:
        """Take up a complaint about `"content": null`; True when the request is worth sending without."""
        if self.no_null_content or not _NULL_REFUSED.search(f"{words.param} {words.message}"):
            return False
        self.no_null_content = any(message["content"] is None for message in body.get("messages", ()))
        return self.no_null_content


def refused_setting(words: ErrorWords, body: dict[str, Any]) -> str | None:
    """The sampling setting of this body that the server does not know, when that is its complaint."""
    for name in (
        "top_k",
        "min_p",
        "top_p",
        "temperature",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        *PREFILL_FIELDS,
    ):
        if name in body and words.names_unsupported(name):
            return name
    return None


def build_body(
    request: GenerateRequest, model: str, fields: RequestFields, content: dict[str, Any], *, extra: JsonDict
) -> dict[str, Any]:
    """The body of a generation request. `content` holds messages or prompt; `extra` is merged last."""
    sampling = request.sampling
    body: dict[str, Any] = {"model": model, **content}
    if fields.no_null_content and "messages" in content:
        body["messages"] = [
            {**message, "content": ""} if message["content"] is None else message for message in content["messages"]
        ]
    if request.n > 1:
        body["n"] = request.n
    if sampling.max_tokens is not None:
        body[fields.max_tokens] = sampling.max_tokens
    for name in ("temperature", "top_p", "top_k", "min_p"):
        if (value := getattr(sampling, name)) is not None:
            body[name] = value
    if sampling.stop and not request.choices:  # given replies are whole as they are; a stop text would cut them
        body["stop"] = (*content.get("stop", ()), *sampling.stop)
    if request.seed is not None and "seed" not in fields.dropped:
        body["seed"] = request.seed
    if request.tools and "messages" in content:
        body["tools"] = request.tools
        if fields.no_tool_choice:
            body["tool_choice"] = "none"  # the template shows the tools all the same; calls are read from the text
    if request.logprobs != "off":
        if "return_token_ids" not in fields.dropped:
            body["return_token_ids"] = True
        if "logprobs" not in fields.dropped:
            body["logprobs"] = True if "messages" in content else fields.logprobs_value
    body.update(extra)
    return body


def prompt_content(prompt: Prompt | tuple[int, ...], stop: tuple[str, ...] = ()) -> dict[str, Any]:
    """The part of a completions body that holds the prompt, and the template's own stop texts."""
    return {"prompt": prompt, "stop": stop} if stop else {"prompt": prompt}


def message_json(message: Message, *, send_reasoning: bool = False) -> dict[str, Any]:
    """A message in the OpenAI shape, without tokens and finish reason. No text is null beside tool calls, else ""."""
    result: dict[str, Any] = {"role": message.role, "content": message.content}
    if not message.content:
        result["content"] = None if message.tool_calls else ""
    if send_reasoning and message.reasoning is not None:
        result["reasoning_content"] = message.reasoning
    if message.tool_calls:
        result["tool_calls"] = [
            {
                "id": call.id or f"call_{index}",
                "type": "function",
                "function": {"name": call.function.name, "arguments": _readable(call.function.arguments)},
            }
            for index, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id is not None:
        result["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        result["name"] = message.name
    return result


def _readable(arguments: str) -> str:
    """What servers take in a conversation, a JSON object: the arguments as they were understood, else none."""
    try:
        if isinstance(json.loads(arguments), dict):
            return arguments
    except (ValueError, RecursionError):
        pass
    parse = parse_tool_calls({"tool_calls": [{"function": {"name": "any", "arguments": arguments}}]}, "openai")
    return json.dumps(parse.calls[0].arguments, ensure_ascii=False) if parse.status == "ok" else "{}"


def encode(body: dict[str, Any]) -> bytes:
    """JSON bytes. Text that cannot be UTF-8 (half a surrogate pair, from an environment) is cleaned."""
    try:
        return to_json(body)
    except (PydanticSerializationError, UnicodeError):
        return to_json(_clean(body))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
