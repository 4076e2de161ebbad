"""Parse command lines with the program's own parser, without carrying anything out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any


def leaf(words: Sequence[str]) -> tuple[Any, Any]:
    """(command, context) of the innermost command that the words name. Raises what the program would report."""
    from atropos_cli.cli.app import root_group
    from atropos_cli.console.session import Session

    command = root_group()
    context = command.make_context("atropos", list(words), obj=Session(words))
    while hasattr(command, "resolve_command"):
        left = [*context._protected_args, *context.args]
        if not left and command.invoke_without_command:
            break
        name, command, left = command.resolve_command(context, left)
        context = command.make_context(name, left, parent=context)
    return command, context


def parse(line: str) -> None:
    """A line that begins with `atropos`; where it holds another command behind two dashes, that one too."""
    words = shlex.split(line)
    assert words[0] == "atropos", line
    _, context = leaf(words[1:])
    inner = context.params.get("command")
    if inner and not inner[0].endswith(".toml"):
        leaf(inner)


def option_names(words: Sequence[str]) -> set[str]:
    """The options of the innermost command that the words name."""
    command, context = leaf(words)
    return {name for param in command.get_params(context) for name in (*param.opts, *param.secondary_opts)}
