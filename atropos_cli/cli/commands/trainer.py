"""`atropos trainer`: which trainers are installed."""

from __future__ import annotations

import typer

from atropos_cli.cli.lazy import new_app
from atropos_cli.cli.listing import print_components
from atropos_cli.console.commands import JsonOption
from atropos_cli.console.session import session_of

app = new_app(help="List trainers.")


@app.callback()
def _trainer() -> None:
    return None


@app.command("list")
def list_trainers(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List installed trainers. `atropos train METHOD --trainer NAME --help` shows a trainer's options."""
    print_components(session_of(ctx), "trainer", as_json=as_json)
