"""Chat templates: Jinja in a sandbox, with what the field's templates expect to find there.

    template = ChatTemplate(source, variables={"bos_token": "<s>"})
    template.render([{"role": "user", "content": "hi"}], generation_prompt=True)

The environment is the one transformers documents (trimmed blocks, loop controls, raise_exception, strftime_now,
a tojson that escapes no HTML, {% generation %} blocks), so a template renders here as it does there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from atropos_cli.errors import ConfigError
from atropos_cli.timelimit import LIMIT, OverTime, time_limit

Turn = dict[str, Any]
"""A message as templates see it: content is text, arguments of tool calls are objects."""


class TemplateRefused(Exception):
    """The template raised: the text is its own words."""


class ChatTemplate:
    """A compiled chat template. variables: special tokens and the user's own, the same for every row."""

    def __init__(self, source: str, variables: Mapping[str, Any] | None = None, *, name: str = "the template") -> None:
        self.source = source
        self.name = name
        self._variables = dict(variables or {})
        self._compiled = _compile(source, name)

    def render(self, turns: Sequence[Turn], tools: Any = None, *, generation_prompt: bool = False) -> str:
        """The text of a conversation. Raises TemplateRefused."""
        try:
            with time_limit():
                text: str = self._compiled.render(
                    messages=list(turns),
                    tools=tools,
                    documents=None,
                    add_generation_prompt=generation_prompt,
                    **self._variables,
                )
        except OverTime as error:
            raise ConfigError(
                f"chat template {self.name} took longer than {LIMIT:g} s for {len(turns)} messages",
                hint="look for loops within loops, or give another --chat-template",
            ) from error
        except Exception as error:  # a template raises whatever its author chose
            raise TemplateRefused(_words(error)) from error
        return text


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    plain = type(error).__name__ in ("TemplateError", "TemplateRuntimeError")
    return text if plain and text else f"{type(error).__name__}: {text}"


def _compile(source: str, name: str) -> Any:
    import jinja2

    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(
            f"chat template {name}, line {error.lineno}: {error.message}",
            hint="mend it, or give another --chat-template",
        ) from error


@lru_cache(maxsize=1)
def _environment() -> Any:
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError as error:
        raise ConfigError("chat templates need jinja2", hint="pip install 'atropos-cli[tokens]'") from error
    started = datetime.now()

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def strftime_now(form: str) -> str:
        return started.strftime(form)  # one moment for the whole run, so that midnight does not split a data set

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_blocks()]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _generation_blocks() -> Any:
    """{% generation %} ... {% endgeneration %} renders as if the tags were not there."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class GenerationBlocks(Extension):
        tags = {"generation"}  # noqa: RUF012 (the base class fixes the form)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    return GenerationBlocks
