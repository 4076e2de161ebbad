"""The texts that an environment writes its messages with: data, so that a file can replace them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pydantic import Field

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.messages import Message, assistant, system, user
from atropos_cli.errors import ConfigError
from atropos_cli.timelimit import time_limit

_MARKS = ("{{", "{%", "{#")


class Turn(Frozen):
    """A question and its answer, shown before the task."""

    user: str
    assistant: str


class Prompt(Frozen):
    """Named texts and example turns. Each is a Jinja template with the variables that the environment gives.

    system, and other names that the environment has: a text; "" leaves the message out. turns: examples.
    """

    texts: dict[str, str] = Field(default_factory=dict)
    turns: tuple[Turn, ...] = ()

    def text(self, name: str, **values: Any) -> str:
        """A text with its variables filled in; "" where there is none. Raises ConfigError for a broken template."""
        return rendered(self.texts.get(name, ""), name, values)

    def examples(self, **values: Any) -> Sequence[Message]:
        """The example turns as messages."""
        return [
            make(rendered(text, f"turns.{number}.{role}", values))
            for number, turn in enumerate(self.turns)
            for role, make, text in (("user", user, turn.user), ("assistant", assistant, turn.assistant))
        ]

    def opening(self, examples: Sequence[Message] = (), **values: Any) -> Sequence[Message]:
        """The system message, unless its text is empty, and the example turns; `examples` where there are none."""
        told = self.text("system", **values)
        return [*((system(told),) if told else ()), *(self.examples(**values) or examples)]

    @property
    def data(self) -> JsonDict:
        """As a plan keeps it."""
        found: JsonDict = dict(self.texts)
        if self.turns:
            found["turns"] = [turn.model_dump() for turn in self.turns]
        return found

    @classmethod
    def of(cls, data: JsonDict) -> Prompt:
        """What `data` gave. Raises pydantic's ValidationError."""
        texts = {name: value for name, value in data.items() if name != "turns"}
        return cls.model_validate({"texts": texts, "turns": data.get("turns", [])})


def rendered(source: str, name: str, values: dict[str, Any]) -> str:
    """A template with its variables filled in; a text without marks of Jinja as it is. Raises ConfigError."""
    if not any(mark in source for mark in _MARKS):
        return source
    template = _template(source, name)
    try:
        with time_limit():
            text: str = template.render(values)
    except Exception as error:
        raise ConfigError(f"prompt {name!r}: {type(error).__name__}: {error}", hint=_known(values)) from error
    return text


@lru_cache(maxsize=256)
def _template(source: str, name: str) -> Any:
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError as error:
        raise ConfigError(f"prompt {name!r} is a template, which needs jinja2", hint="pip install jinja2") from error
    sandbox = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    try:
        return sandbox.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"prompt {name!r}, line {error.lineno}: {error.message}", hint="mend the template") from error


def _known(values: dict[str, Any]) -> str:
    return f"its variables: {', '.join(sorted(values)) or 'none'}"
