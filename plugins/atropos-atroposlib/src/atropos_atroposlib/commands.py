"""`atropos env import PATH`: what a checkout holds, read without importing anything of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atropos_atroposlib.checkout import Found, scan
from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import JsonOption, counted, end, session_of, shell
from atropos_cli.sdk.foreign import added

_SHOWN = 6


def import_environments(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Checkout, folder or file.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """List the environment classes of atroposlib below a path, their options, and modules that their Python lacks."""
    session = session_of(ctx)
    place = path.expanduser()
    if not place.exists():
        raise UsageError(f"there is no {place}", hint="name a checkout, a folder or a file")
    python = next((item.python for item in added("atroposlib") if item.source is None), None)
    found = scan(place, python)
    if as_json:
        session.out.json([item.model_dump(mode="json") for item in found])
        return
    if not found:
        end(session.out, f"no environment class of atroposlib below {place}", shell("env", "list"))
        return
    session.out.table([_row(item) for item in found], header=("environment", "options", "missing"))
    ready = next((item for item in found if not item.missing), found[0])
    end(session.out, counted(len(found), "environment"), shell("gen", f"atroposlib:{ready.source}"))


def _row(item: Found) -> tuple[str, str, str]:
    more = f" and {len(item.options) - _SHOWN} more" if len(item.options) > _SHOWN else ""
    return item.source, ", ".join(item.options[:_SHOWN]) + more, ", ".join(item.missing)
