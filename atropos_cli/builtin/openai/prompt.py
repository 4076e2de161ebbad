"""Prompts for the completions endpoint: messages to text or token ids, by a template or a tokenizer.

    plain      contents joined by blank lines: for base models
    chatml     <|im_start|>role ... <|im_end|>
    FILE       a jinja chat template, in a sandbox, with the variables Hugging Face templates expect
    tokenizer  apply_chat_template of a local folder or a hub id; exact token ids are sent

A text prompt gets its beginning-of-text token from the server, so templates see bos_token = "".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from atropos_cli.sdk import ConfigError, JsonDict, OverTime, time_limit
from atropos_cli.sdk.backends import FatalBackendError, RequestRejected

Prompt = str | list[int]
_TextRender = Callable[[list[dict[str, Any]], Sequence[JsonDict] | None], str]


class Render(Protocol):
    """Makes a prompt; `prefill` is the text that the reply begins with."""

    def __call__(
        self, messages: list[dict[str, Any]], tools: Sequence[JsonDict] | None, prefill: str = ""
    ) -> Prompt: ...


BUILTIN_TEMPLATES = ("plain", "chatml")


def make_render(chat_template: str | None, tokenizer: str | None) -> Render:
    """The function that makes prompts. Loads files and libraries: not on the event loop. Raises ConfigError."""
    if tokenizer is not None:
        return _tokenizer_render(tokenizer, chat_template)
    as_text = _text_render(chat_template or "plain")

    def render(messages: list[dict[str, Any]], tools: Sequence[JsonDict] | None, prefill: str = "") -> str:
        return as_text(messages, tools) + prefill

    return render


def stop_texts(chat_template: str | None) -> tuple[str, ...]:
    """What ends a completion under the template, beside the model's own end token."""
    return ("<|im_end|>",) if chat_template == "chatml" else ()


def _text_render(template: str) -> _TextRender:
    if template == "plain":
        return _plain
    if template == "chatml":
        return _chatml
    return _jinja(template)


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if part.get("type") == "text")
    return content or ""


def _no_tools(tools: Sequence[JsonDict] | None, template: str) -> None:
    if tools:
        raise FatalBackendError(
            f"the chat template {template!r} cannot show tools to the model",
            hint="use --endpoint chat, or a jinja template or tokenizer that knows tools",
        )


def _plain(messages: list[dict[str, Any]], tools: Sequence[JsonDict] | None) -> str:
    _no_tools(tools, "plain")
    return "\n\n".join(text for text in map(_content, messages) if text)


def _chatml(messages: list[dict[str, Any]], tools: Sequence[JsonDict] | None) -> str:
    _no_tools(tools, "chatml")
    turns = [f"<|im_start|>{message['role']}\n{_content(message)}<|im_end|>\n" for message in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


def _jinja(template: str) -> _TextRender:
    path = Path(template).expanduser()
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"chat_template {template!r} is neither {', '.join(BUILTIN_TEMPLATES)} nor a readable file: {error}",
            hint="--backend.chat-template chatml, or the path of a jinja file",
        ) from error
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError as error:
        raise ConfigError(f"chat_template {template!r} needs jinja2", hint="pip install jinja2") from error

    def raise_exception(message: str) -> str:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    try:
        compiled = environment.from_string(source)
    except TemplateError as error:
        raise ConfigError(f"chat_template {template!r} is not a jinja template: {error}") from error

    def render(messages: list[dict[str, Any]], tools: Sequence[JsonDict] | None) -> str:
        try:
            with time_limit():
                return compiled.render(
                    messages=_parsed_arguments(messages),
                    tools=list(tools) if tools else None,
                    add_generation_prompt=True,
                    bos_token="",
                    eos_token="",
                )
        except OverTime as error:
            raise FatalBackendError(f"chat_template {template!r} took too long: {error}") from error
        except (TemplateError, TypeError, ValueError) as error:
            raise RequestRejected(f"chat_template {template!r} refuses the messages: {error}") from error

    return render


def _tokenizer_render(name: str, chat_template: str | None) -> Render:
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise ConfigError(f"tokenizer {name!r} needs transformers", hint="pip install transformers") from error
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(Path(name).expanduser()))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"tokenizer {name!r} cannot be loaded: {error}", hint="give a local folder or a Hugging Face id"
        ) from error
    if chat_template is not None:
        as_text = _text_render(chat_template)
        special = chat_template == "plain"  # a template writes its special tokens itself

        def encode(messages: list[dict[str, Any]], tools: Sequence[JsonDict] | None, prefill: str = "") -> list[int]:
            return list(tokenizer.encode(as_text(messages, tools) + prefill, add_special_tokens=special))

        return encode
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"tokenizer {name!r} has no chat template",
            hint="add --backend.chat-template with chatml, plain or the path of a jinja file",
        )

    def apply(messages: list[dict[str, Any]], tools: Sequence[JsonDict] | None, prefill: str = "") -> list[int]:
        try:
            with time_limit():
                ids = tokenizer.apply_chat_template(
                    _parsed_arguments(messages),
                    tools=list(tools) if tools else None,
                    add_generation_prompt=True,
                    tokenize=True,
                    return_dict=False,
                )
        except OverTime as error:
            raise FatalBackendError(f"the template of tokenizer {name!r} took too long: {error}") from error
        except Exception as error:
            # Templates raise jinja2 errors, and whatever their expressions run into.
            raise RequestRejected(f"the template of tokenizer {name!r} refuses the messages: {error}") from error
        return [*ids, *(tokenizer.encode(prefill, add_special_tokens=False) if prefill else ())]

    return apply


def _parsed_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls with their arguments as objects, as templates expect them, where they are JSON objects."""
    if not any("tool_calls" in message for message in messages):
        return messages
    result = []
    for message in messages:
        calls = message.get("tool_calls")
        if calls:
            message = {**message, "tool_calls": [_parsed_call(call) for call in calls]}
        result.append(message)
    return result


def _parsed_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}} if isinstance(arguments, dict) else call
