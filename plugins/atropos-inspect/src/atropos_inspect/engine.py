"""In the place of inspect's model providers: requests go to the engine, in OpenAI's terms.

Loaded by `worker` under the task's own Python.
"""

from __future__ import annotations

import contextvars
import json
import uuid
from typing import Any

CALL: contextvars.ContextVar[Any] = contextvars.ContextVar("call")
SAMPLED: contextvars.ContextVar[dict[str, str]] = contextvars.ContextVar("sampled")
"""The texts of the replies of one sample, by the ids of their messages."""
POLICY = "policy"
ROLES = ("grader",)
AT_ONCE = 1 << 20
_NOT_ASKED = frozenset({
    "max_retries", "timeout", "attempt_timeout", "max_connections", "adaptive_connections", "cache", "batch",
    "modalities", "fallbacks", "max_tool_output", "system_message", "stop_seqs", "num_choices", "fail_on_refusal",
    "stream_idle_timeout",
})  # fmt: skip
"""Fields that inspect itself uses, or that have another name here."""
_STOPS = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls", "content_filter": "content_filter"}
_STOPS |= {"context_length": "model_length"}


def models() -> tuple[Any, dict[str, Any]]:
    """The model of the samples, and those of roles."""
    from inspect_ai.model import GenerateConfig, ModelAPI, get_model, modelapi

    class EngineAPI(ModelAPI):  # type: ignore[misc]
        """No retries, limits or connections of its own: the engine has them."""

        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
            return await asked(self.model_name, input, tools, tool_choice, config)

        def max_connections(self) -> int:
            return AT_ONCE

        def connection_key(self) -> str:
            return str(self.model_name)

    modelapi(name="engine")(lambda: EngineAPI)
    # A fixed number of connections: with the adaptive one it would begin with few.
    config = GenerateConfig(max_connections=AT_ONCE)
    made = {name: get_model(f"engine/{name}", config=config, memoize=False) for name in (POLICY, *ROLES)}
    return made[POLICY], {name: made[name] for name in ROLES}


async def asked(name: str, messages: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
    """The engine's answer as inspect's."""
    if (call := CALL.get(None)) is None:
        raise RuntimeError("the task asks the model outside a sample, when it is made for example: the engine cannot")
    request = {key: value for key, value in config.model_dump(exclude_none=True).items() if key not in _NOT_ASKED}
    if config.stop_seqs:
        request["stop"] = list(config.stop_seqs)
    if config.num_choices:
        request["n"] = config.num_choices
    if tools:
        request["tools"] = [tool_schema(tool) for tool in tools]
        # "auto" is what an engine does without being told.
        if tool_choice not in (None, "auto"):
            request["tool_choice"] = tool_choice if isinstance(tool_choice, str) else str(tool_choice.name)
    messages = [to_openai(message) for message in messages]
    said = await call.ask(**{**request, "kind": "chat", "role": name, "messages": messages})
    return output(said, list(tools))


def output(said: dict[str, Any], tools: list[Any]) -> Any:
    """An answer of the engine in inspect's classes."""
    from inspect_ai.model import ChatCompletionChoice, ModelOutput, ModelUsage

    choices = [
        ChatCompletionChoice(message=reply(choice, tools), stop_reason=_STOPS.get(choice["finish_reason"], "unknown"))
        for choice in said["choices"]
    ]
    usage = said.get("usage") or {}
    prompt, completion = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    counted = ModelUsage(input_tokens=prompt, output_tokens=completion, total_tokens=prompt + completion)
    return ModelOutput(model=POLICY, choices=choices, usage=counted)


def reply(choice: dict[str, Any], tools: list[Any]) -> Any:
    """One choice as a message."""
    from inspect_ai.model import ChatMessageAssistant, ContentReasoning, ContentText
    from inspect_ai.model._call_tools import parse_tool_call

    calls = [
        parse_tool_call(
            item.get("id") or f"call_{uuid.uuid4().hex[:8]}",
            item["function"]["name"],
            item["function"].get("arguments") or "{}",
            tools,
        )
        for item in choice.get("tool_calls") or ()
    ]
    content: Any = choice["content"] or ""
    if choice.get("reasoning"):
        content = [ContentReasoning(reasoning=choice["reasoning"]), ContentText(text=content)]
    number = uuid.uuid4().hex
    SAMPLED.get()[number] = choice["content"] or ""
    return ChatMessageAssistant(id=number, content=content, tool_calls=calls or None, model=POLICY, source="generate")


def tool_schema(tool: Any) -> dict[str, Any]:
    """A tool as a function in OpenAI's shape."""
    parameters = tool.parameters.model_dump(exclude_none=True, by_alias=True)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def to_openai(message: Any) -> dict[str, Any]:
    """A message of inspect as OpenAI has it."""
    made: dict[str, Any] = {"role": message.role, "content": content_of(message.content)}
    if message.role == "assistant":
        if thought := reasoning_of(message.content):
            made["reasoning_content"] = thought
        if message.tool_calls:
            made["tool_calls"] = [call_of(item) for item in message.tool_calls]
    elif message.role == "tool":
        made["tool_call_id"] = message.tool_call_id
        if message.function:
            made["name"] = message.function
        if message.error is not None:
            made["content"] = f"Error: {message.error.message}"
    return made


def ending(messages: list[Any]) -> list[dict[str, Any]]:
    """The conversation at a sample's end. Of a reply that a solver only appended to, as react() does, the reply."""
    made = []
    for message in messages:
        item = to_openai(message)
        reply = SAMPLED.get().get(message.id or "")
        if reply and isinstance(item["content"], str) and item["content"].startswith(reply):
            item["content"] = reply
        made.append(item)
    return made


def call_of(call: Any) -> dict[str, Any]:
    """A call of a tool as it was made, where it was readable."""
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.function, "arguments": arguments}}


def content_of(content: Any) -> Any:
    """A text, or parts where there are pictures. Raises TypeError for other media."""
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for part in content:
        if part.type == "text":
            parts.append({"type": "text", "text": part.text})
        elif part.type == "image":
            parts.append({"type": "image_url", "image_url": {"url": part.image, "detail": part.detail}})
        elif part.type != "reasoning":
            raise TypeError(f"the engine takes texts and pictures, not {part.type}")
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def reasoning_of(content: Any) -> str:
    if isinstance(content, str):
        return ""
    return "\n".join(part.reasoning for part in content if part.type == "reasoning")
