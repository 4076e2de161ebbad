"""`atropos config show`: every setting in force and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from atropos_cli.cli.ending import counted, end
from atropos_cli.cli.environments import Chosen, environment_app, gen_buckets, pick_backend, settle
from atropos_cli.cli.lazy import new_app
from atropos_cli.cli.options import ConfigOption, JsonOption
from atropos_cli.cli.session import Session, session_of

if TYPE_CHECKING:
    from atropos_cli.config.resolve import Resolved

app = new_app(help="Show each setting and where it comes from.")
show = new_app(invoke_without_command=True, subcommand_metavar="[gen ENV [OPTIONS]]")


@app.callback()
def _config() -> None:
    return None


@show.callback()
def show_settings(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print every setting with its source: flag, ATROPOS_* variable, file and line, or default.

    `atropos config show gen ENV` takes the flags of `atropos gen ENV` and shows the environment's options too.
    """
    if ctx.invoked_subcommand is not None:
        return
    session = session_of(ctx)
    args = ["--config", str(config)] if config else []
    backend = pick_backend(session.registry, args, lenient=True)
    buckets = gen_buckets(session.registry, None, None, None if backend is None else backend.backend)
    print_resolved(settle(buckets, config, ()), session, as_json=as_json)


def show_gen(chosen: Chosen, *, as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """What `atropos gen ENV` would use."""
    print_resolved(chosen.resolved, chosen.session, as_json=as_json)


def print_resolved(resolved: Resolved, session: Session, *, as_json: bool) -> None:
    """One line per option: key, value, source."""
    from atropos_cli.config.places import PROJECT_FILE, user_file
    from atropos_cli.config.show import program_rows, rows

    found = [*program_rows(session.program), *rows(resolved)]
    out = session.out
    if as_json:
        out.json([row.as_json() for row in found])
        return
    out.table([(row.key, row.text, str(row.origin)) for row in found], header=("setting", "value", "source"))
    for path in (user_file(), Path(PROJECT_FILE)):
        out.note(f"{path}: {'read' if path.is_file() else 'not there'}")
    changed = sum(row.origin.kind != "default" for row in found)
    end(
        out,
        f"{counted(len(found), 'setting')}, {changed} not at the default",
        f"set one in {PROJECT_FILE}, by a flag or a variable",
    )


show.add_typer(environment_app(show_gen, "What `atropos gen ENV` would use.", full=True), name="gen")
app.add_typer(show, name="show")
