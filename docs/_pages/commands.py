"""Every command's help text, as the program prints it with no plugin installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from _pages.markdown import code, page

INTRO = """\
What `atropos ... --help` prints, on 100 columns and with no plugin installed but those of ours that bring
commands. A command that takes an environment (`gen`, `env check`, `config show gen`) also shows the options of
that environment and of the backend: `atropos gen arithmetic --help`. Those are in [components](components.md).
Plugins can add commands of their own; `atropos --help` lists them."""


def pages() -> Iterator[tuple[str, str]]:
    """reference/commands.md."""
    from atropos_cli.cli.app import COMMANDS, root_group
    from atropos_cli.console.session import Session
    from atropos_cli.plugins.entrypoints import scan

    with_commands = {"atropos-cli", *(command.dist for command in COMMANDS.values())}
    os.environ["ATROPOS_DISABLE_PLUGINS"] = ",".join({entry.dist for entry in scan()[0]} - with_commands)
    try:
        root = root_group()
        parts = list(_walk(root, "atropos", root.make_context("atropos", [], obj=Session(), resilient_parsing=True)))
    finally:
        del os.environ["ATROPOS_DISABLE_PLUGINS"]
    yield "commands.md", page("Commands", INTRO, *parts)


def _walk(command: Any, path: str, ctx: Any) -> Iterator[str]:
    level = "##" if path.count(" ") < 2 else "###"
    yield f"{level} {path}\n\n{code(ctx.get_help())}"
    names = command.list_commands(ctx) if hasattr(command, "list_commands") else []
    for name in names:
        sub = command.get_command(ctx, name)
        yield from _walk(sub, f"{path} {name}", sub.make_context(name, [], parent=ctx, resilient_parsing=True))
