"""`atropos reward`: which rewards are installed."""

from __future__ import annotations

import typer

from atropos_cli.cli.lazy import new_app
from atropos_cli.cli.listing import print_components
from atropos_cli.console.commands import JsonOption
from atropos_cli.console.session import session_of

app = new_app(help="List rewards.")


@app.callback()
def _reward() -> None:
    return None


@app.command("list")
def list_rewards(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List installed rewards. `atropos env info ENV` shows an environment's own."""
    print_components(session_of(ctx), "reward", as_json=as_json)
