"""Every command's help text, as the program prints it with no plugin installed: a page per command, and their index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from _pages.markdown import code, page, table

INTRO = """\
Each page shows what `atropos COMMAND --help` prints, 100 columns wide and with no plugin installed but our own that
bring commands. A command with an environment (`gen`, `env check`, `config show gen`) also shows the options of that
environment and of the backend: `atropos gen arithmetic --help`. Those are listed in [components](../components.md).
Plugins can add commands; `atropos --help` lists them."""


def pages() -> Iterator[tuple[str, str]]:
    """reference/commands/NAME.md for each command, and reference/commands/index.md."""
    from atropos_cli.cli.app import COMMANDS, root_group
    from atropos_cli.console.session import Session
    from atropos_cli.plugins.entrypoints import scan

    with_commands = {"atropos-cli", *(command.dist for command in COMMANDS.values())}
    os.environ["ATROPOS_DISABLE_PLUGINS"] = ",".join({entry.dist for entry in scan()[0]} - with_commands)
    try:
        root = root_group()
        ctx = root.make_context("atropos", [], obj=Session(), resilient_parsing=True)
        rows = []
        for name in root.list_commands(ctx):
            command, own = _command(root, name, ctx)
            parts = list(_subcommands(command, f"atropos {name}", own))
            yield f"commands/{name}.md", page(f"atropos {name}", code(own.get_help()), *parts)
            rows.append((f"[`atropos {name}`]({name}.md)", command.get_short_help_str(100)))
        contents = "```{toctree}\n:hidden:\n\n" + "\n".join(root.list_commands(ctx)) + "\n```"
        yield (
            "commands/index.md",
            page(
                "Commands",
                INTRO,
                table(("command", "purpose"), rows),
                f"## Options of every command\n\n{code(ctx.get_help())}",
                contents,
            ),
        )
    finally:
        del os.environ["ATROPOS_DISABLE_PLUGINS"]


def _command(group: Any, name: str, ctx: Any) -> tuple[Any, Any]:
    command = group.get_command(ctx, name)
    return command, command.make_context(name, [], parent=ctx, resilient_parsing=True)


def _subcommands(command: Any, path: str, ctx: Any) -> Iterator[str]:
    """A section for each command below this one, in the order of its help text."""
    for name in command.list_commands(ctx) if hasattr(command, "list_commands") else []:
        sub, own = _command(command, name, ctx)
        yield f"## {path} {name}\n\n{code(own.get_help())}"
        yield from _subcommands(sub, f"{path} {name}", own)
