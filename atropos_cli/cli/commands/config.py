"""`atropos config show`: every setting in force and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from atropos_cli.cli.commands import eval as evaluate
from atropos_cli.cli.commands import gen
from atropos_cli.cli.environments import (
    ConfiguredEnvironment,
    EnvironmentGroup,
    Use,
    environment_app,
    gen_buckets,
    pick_backend,
    resolve_settings,
)
from atropos_cli.cli.lazy import Group, add_common, command_of, members, new_app
from atropos_cli.config.resolve import Resolved
from atropos_cli.console.commands import ConfigOption, JsonOption, bucket_of, command_with
from atropos_cli.console.ending import counted, end
from atropos_cli.console.session import Session, session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from atropos_cli.config.show import Row
    from atropos_cli.console.output import Output


def show_environment(
    chosen: ConfiguredEnvironment, *, as_json: JsonOption = False, config: ConfigOption = None
) -> None:
    """What `atropos gen ENV` or `atropos eval ENV` would use."""
    from atropos_cli.config.show import rows

    print_rows(rows(chosen.resolved), chosen.session, as_json=as_json)


class _Resolved(Protocol):
    """What any command with settings was called with."""

    @property
    def session(self) -> Session: ...
    @property
    def resolved(self) -> Resolved: ...


def show_resolved(chosen: _Resolved, *, as_json: JsonOption = False, config: ConfigOption = None) -> None:
    """What a command with methods would use."""
    from atropos_cli.config.show import rows

    print_rows(rows(chosen.resolved), chosen.session, as_json=as_json)


def _tell_dotenv(out: Output) -> None:
    """What became of the file .env, never with a value."""
    from atropos_cli.config import dotenv

    lines, unread = dotenv.read() if dotenv.is_on() else ([], f"{dotenv.SWITCH} is off")
    if unread is not None:
        out.note(f"{dotenv.FILE}: not read: {unread}")
    wrong = [line for line in lines if line.name is None and dotenv.allowed(line.meant)]
    passed = sum(1 for line in lines if not dotenv.allowed(line.name or line.meant))
    if lines:
        out.note(f"{dotenv.FILE}: read" + (f"; lines that are not for atropos: {passed}" if passed else ""))
    for line in wrong:
        out.note(
            f"{dotenv.FILE}:{line.number}: {line.meant} is passed over: the line is not NAME=VALUE, or a quote is open"
        )


_OF_SECTION = {"launch": "launch-vllm"}
"""A section that commands share, and one of them."""


_LISTED = frozenset({"train"})
"""Commands of our plugins that have methods: listed in the help where they are installed."""


class _ShowGroup(Group):
    """`config show COMMAND`, for the commands below and every other that has options."""

    def list_commands(self, ctx: Any) -> list[str]:
        root = ctx.find_root()
        return [*super().list_commands(ctx), *_LISTED & {*root.command.list_commands(root)}]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        name = _OF_SECTION.get(cmd_name, cmd_name)
        root = ctx.find_root()
        command = root.command.get_command(root, name)
        if (showing := getattr(command, "showing", None)) is not None:
            made = showing(show_resolved)
            made.name = cmd_name
            add_common(made)
            return made
        inside = members(root.command.table, command, name)
        if not inside:
            return _shower(command, cmd_name)
        shown = {name: _shower(member, name) for name, member in inside.items()}
        commands = {name: command for name, command in shown.items() if command is not None}
        sections = {bucket.section for member in inside.values() if (bucket := bucket_of(member.callback))}
        return _shown_group(cmd_name, commands, sections) if commands else None


def _shown_group(name: str, commands: dict[str, Any], sections: set[str | None]) -> Any:
    """`config show GROUP COMMAND`; GROUP alone shows the section where the commands share one."""
    if name not in sections:
        return Group(name=name, commands=commands, rich_markup_mode=None)

    def show_section(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
        from atropos_cli.config.launchers import section_rows

        if ctx.invoked_subcommand is None:
            print_rows(section_rows(name, config), session_of(ctx), as_json=as_json)

    grouped = new_app(help=f"What section [{name}] of the files has.", invoke_without_command=True)
    grouped.callback()(show_section)
    made: Any = typer.main.get_group(grouped)
    made.name = name
    made.commands.update(commands)
    return made


def _shower(command: Any, name: str) -> Any:
    """A command with the flags of another that shows their values; None for one without options."""
    if isinstance(command, EnvironmentGroup):
        shows = Use(show_environment, command.use.own, full=False, looks=True)
        made: Any = typer.main.get_command(environment_app(shows, f"What `atropos env {name} ENV` would use."))
        made.name = name
        return made
    bucket = bucket_of(getattr(command, "callback", None))
    if bucket is None:
        return None

    def show_options(*, resolved: Resolved, session: Session, as_json: JsonOption = False) -> None:
        from atropos_cli.config.show import rows

        print_rows(rows(resolved), session, as_json=as_json)

    show_options.__doc__ = f"What `{bucket.label}` would use."
    made = command_of(command_with(show_options, bucket), name=name, cls=type(command))
    add_common(made)
    return made


def print_rows(settings: Sequence[Row], session: Session, *, as_json: bool) -> None:
    """One line per option: key, value, source; then the usual variables that are set, and what files were read."""
    from atropos_cli.config.places import PROJECT_FILE, user_file
    from atropos_cli.config.show import program_rows, usual_rows

    found = [*program_rows(session.program), *settings, *usual_rows(settings)]
    out = session.out
    if as_json:
        out.json([row.as_json() for row in found])
        return
    out.table([(row.key, row.text, str(row.origin)) for row in found], header=("setting", "value", "source"))
    for path in (user_file(), Path(PROJECT_FILE)):
        out.note(f"{path}: {'read' if path.is_file() else 'not there'}")
    _tell_dotenv(out)
    changed = sum(row.origin.kind != "default" for row in found)
    end(
        out,
        f"{counted(len(found), 'setting')}, {changed} not at the default",
        f"set one in {PROJECT_FILE}, by a flag or a variable",
    )


app = new_app(help="Show each setting and where it comes from.")
show = new_app(cls=_ShowGroup, invoke_without_command=True, subcommand_metavar="[COMMAND [OPTIONS]]")


@app.callback()
def _config() -> None:
    return None


@show.callback()
def show_settings(ctx: typer.Context, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print every setting with its source: flag, variable, file and line, or default.

    `atropos config show gen ENV` takes the flags of `atropos gen ENV` and shows the environment's options too; the
    same goes for eval, train and every other command: `atropos config show filter`.
    """
    from atropos_cli.config.show import rows

    if ctx.invoked_subcommand is not None:
        return
    session = session_of(ctx)
    args = ["--config", str(config)] if config else []
    backend = pick_backend(session.registry, args, lenient=True)
    buckets = gen_buckets(session.registry, None, None, None if backend is None else backend.backend)
    print_rows(rows(resolve_settings(buckets, config, ())), session, as_json=as_json)


for _name, _own in (("gen", gen.OWN), ("eval", evaluate.OWN)):
    _use = Use(show_environment, _own, looks=True)
    show.add_typer(environment_app(_use, f"What `atropos {_name} ENV` would use."), name=_name)
app.add_typer(show, name="show")
