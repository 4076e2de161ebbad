"""Files of prompts: TOML with one text a key, and example turns.

system = "Solve the problem. Answer in {{ language }}."

[[turns]]
user = "What is 2 + 3?"
assistant = "Answer: 5"
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.paths import home
from atropos_cli.ports.prompt import Prompt

_MOST_BYTES = 1_000_000


def packaged_prompt(module: str, name: str = "prompts.toml") -> Prompt:
    """The prompts in a file beside a module of a package: packaged_prompt(__file__)."""
    return read_prompt(Path(module).with_name(name))


def read_prompt(path: Path) -> Prompt:
    """A file of prompts. Raises ConfigError."""
    path = Path(home(str(path)))
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path} is too large for a file of prompts", hint="give a TOML file of a few texts")
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return Prompt.of(data)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="--prompt FILE.toml") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}", hint='write texts as in: system = "..."') from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])).removeprefix("texts.")
        raise ConfigError(f"{path}: {where}: {first['msg']}", hint='texts are as in: system = "..."') from error


def prompt_of(environment: Any, stored: JsonDict | None, file: Any = None) -> Prompt:
    """The prompt of an environment class: as a plan stored it, or its own with what a file says instead.

    Raises UsageError for an environment without prompts, ConfigError for a text that it does not have.
    """
    own: Prompt = environment.prompt
    if stored:
        return Prompt.of(stored)
    if file is None:
        return own
    known = own.data
    if not known:
        raise UsageError(
            f"environment {environment.name!r} has no prompts that a file can replace", hint="leave out --prompt"
        )
    given = read_prompt(Path(str(file)))
    for name in given.texts:
        if name not in own.texts:
            names = ", ".join([*own.texts, "turns"])
            raise ConfigError(f"{file}: environment {environment.name!r} has no text {name!r}", hint=f"it has: {names}")
    return Prompt(texts={**own.texts, **given.texts}, turns=given.turns or own.turns)
