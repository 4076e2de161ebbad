"""A command that is given to another command, to be carried out elsewhere: is it one, and what variables it gets."""

from __future__ import annotations

import os
import re

from atropos_cli.cli import habits
from atropos_cli.errors import UsageError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def all_commands() -> list[str]:
    """The names of all commands, those of plugins last."""
    from atropos_cli.cli.app import COMMANDS
    from atropos_cli.cli.lazy import plugin_commands

    return list(dict.fromkeys((*COMMANDS, *plugin_commands(COMMANDS))))


def check_known(name: str) -> None:
    """Raises UsageError with what to type instead when there is no command of this name."""
    known = all_commands()
    if name not in known:
        words = habits.command_words("atropos", name)
        hint = habits.next_step("atropos", name, known) if words is None else f"atropos {' '.join(words)}"
        general = "what is given here is a command of atropos: gen ENV, train grpo, ... (atropos --help)"
        raise UsageError(f"atropos has no command {name!r}", hint=hint or general)


def variable(text: str) -> tuple[str, str | None]:
    """(name, value) of --env NAME=VALUE; value None for NAME alone, which must be set here. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise UsageError(f"--env {name!r} is not NAME or NAME=VALUE")
    if not equals and name not in os.environ:
        raise UsageError(f"--env {name}: the variable is not set here", hint=f"export {name}=..., or drop it")
    return name, value if equals else None
