"""Commands that are imported when they run, so that `atropos --help` stays quick whatever is installed.

A command is a row of a static table: name, section of the help, "module:attr", one line. The attribute
is a typer.Typer or a function. Commands of plugins (entry-point group `atropos.commands`) are
listed from the metadata of the installed distributions, without importing them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from atropos_cli.cli import habits
from atropos_cli.cli.examples import write_examples
from atropos_cli.cli.parameters import expand_homes, on_level, on_log_level, refuse_repeats
from atropos_cli.console.command import Command
from atropos_cli.errors import AtroposError, ComponentNotFound, PluginError, UsageError
from atropos_cli.streams import stdout_to_stderr

PLUGIN_SECTION = "Commands of plugins"
SWITCHES = ("debug", "strict-plugins", "quiet", "verbose", "log-level")
"""Flags of every command whose names an option made from a model cannot have."""
_DECLARED = {
    "LauncherCommands": "atropos_cli.cli.commands.job:launcher_group",
    "EnvironmentCommands": "atropos_cli.cli.environments:declared_group",
}
"""What the entry point of a command may name besides an application or a function, and what makes commands of it."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command by name: where it is, and what help says of it.

    dist: the distribution of ours that brings it, as an entry point of that name; it then has no target here.
    """

    target: str
    summary: str
    section: str = "Commands"
    dist: str = ""


class Help(UsageError):
    """A command group was called without a command: the answer is its help."""


class Group(TyperGroup):
    """A group that says what it offers when it is called alone or with an unknown command.

    first: what its commands are, where options stand behind that: "ENV".
    """

    first = ""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys((*super().list_commands(ctx), *added(ctx))))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        return own if own is not None else added_command(_table(ctx), _full_name(ctx, cmd_name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """What plugins add is described by the table and by metadata: help imports none of it."""
        own = {name: super(Group, self).get_command(ctx, name) for name in super().list_commands(ctx)}
        more = {name: text for name, text in added(ctx).items() if name not in own}
        width = formatter.width - 6 - max(map(len, (*own, *more)), default=0)
        rows = [(name, found.get_short_help_str(width)) for name, found in own.items() if found and not found.hidden]
        if rows := [*rows, *more.items()]:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            raise Help(ctx.get_help())
        known = {name for param in self.get_params(ctx) for name in param.opts}
        given = args[0].partition("=")[0] if args else ""
        if given and f"-{given}" in known and len(given) > 2:
            raise UsageError(f"no such option: {given}", hint=f"did you mean -{given}?")
        elsewhere = self.first and given.startswith("-") and given not in known
        if elsewhere and not habits.close_names(given.lstrip("-"), [name.lstrip("-") for name in known]):
            raise UsageError(
                f"{args[0]}: {self.first} comes first", hint=f"{ctx.command_path} {self.first} {args[0]} ..."
            )
        return super().parse_args(ctx, args)

    def known_commands(self, ctx: Any) -> list[str]:
        """The names that a misspelt one is compared with."""
        return list(dict.fromkeys((*self.list_commands(ctx), *below(_table(ctx), _full_name(ctx)))))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None:
            if (session := ctx.find_root().obj) is not None:
                session.command = f"{ctx.command_path} {name}"
            return name, command, args[1:]
        if name.startswith("-"):
            raise UsageError(f"{name!r} is not an option of {ctx.command_path}", hint=f"{ctx.command_path} --help")
        words = habits.command_words(ctx.command_path, name)
        if words is not None:
            ctx.find_root().obj.out.note(f"{name} is {' '.join(words)} here")
            return self.resolve_command(ctx, [*words, *args[1:]])
        hint = habits.next_step(ctx.command_path, name, self.known_commands(ctx)) or f"{ctx.command_path} --help"
        raise UsageError(f"{ctx.command_path} has no command {name!r}", hint=hint)


class LazyGroup(Group):
    """The top of the command line. Subclasses give `table`; "env check" in it is a command of the group `env`."""

    table: dict[str, LazyCommand] = {}  # noqa: RUF012 (replaced, never changed)

    def list_commands(self, ctx: Any) -> list[str]:
        installed = below(plugin_commands(self.table), "")
        ours = [name for name, row in below(self.table, "").items() if not row.dist or name in installed]
        return list(dict.fromkeys((*ours, *installed)))

    def known_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys((*below(self.table, ""), *below(plugin_commands(self.table), ""))))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = self.table.get(cmd_name)
        if known is not None and not known.dist:
            return _guarded(as_command(load_target(known.target), cmd_name, known.summary))
        return added_command(self.table, cmd_name) if " " not in cmd_name else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        installed = below(plugin_commands(self.table), "")
        for name, row in below(self.table, "").items():
            if not row.dist or name in installed:
                sections.setdefault(row.section, []).append((name, row.summary))
        for name, dist in installed.items():
            if name not in self.table:
                sections.setdefault(PLUGIN_SECTION, []).append((name, _from(name, dist, self.table)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def below(rows: Mapping[str, Item], path: str) -> dict[str, Item]:
    """The rows of the group of that path, by the last word of their names."""
    found = ((name.rpartition(" "), row) for name, row in rows.items())
    return {last: row for (parent, _, last), row in found if parent == path}


def _table(ctx: Any) -> Mapping[str, LazyCommand]:
    table: Mapping[str, LazyCommand] = getattr(ctx.find_root().command, "table", {})
    return table


def _full_name(ctx: Any, name: str = "") -> str:
    """The words after `atropos`: of a group, or of a command in it."""
    return " ".join((*ctx.command_path.split()[1:], name)).strip()


def added(ctx: Any) -> dict[str, str]:
    """The installed commands that plugins add to a group, and what help says of each. Reads metadata only."""
    table, path = _table(ctx), _full_name(ctx)
    rows = below(table, path)
    return {
        name: rows[name].summary if name in rows else _from(name, dist, owners(table), path)
        for name, dist in below(plugin_commands(table), path).items()
    }


def added_command(table: Mapping[str, LazyCommand], name: str) -> Any:
    """A command of a plugin by the words after `atropos`; None when there is none.

    Raises ComponentNotFound with the line that installs it for one of our own distributions.
    """
    from atropos_cli.plugins.commands import command_clashes, command_entry_points, load_command, offered_commands

    known, last = table.get(name), name.rpartition(" ")[2]
    offered = offered_commands()
    built_in = owners(table, offered)
    if name in command_entry_points(built_in=built_in, offered=offered):
        loaded = load_command(name, built_in=built_in, offered=offered)
        if known is not None:
            return _guarded(as_command(loaded, last, known.summary))
        return _plugin_command(name, loaded)
    if known is not None:
        from atropos_cli.plugins.firstparty import install_command_of

        raise ComponentNotFound(
            f"atropos {name} comes with {known.dist}, which is not installed", hint=install_command_of(known.dist)
        )
    return load_command(name) if name in command_clashes() else None


def members(table: Mapping[str, LazyCommand], command: Any, path: str) -> dict[str, Any]:
    """The commands of a group by name, those of plugins as well; one that cannot be loaded is left out."""
    found = dict(getattr(command, "commands", {}))
    if isinstance(command, Group):
        for name in below(plugin_commands(table), path).keys() - found.keys():
            with contextlib.suppress(AtroposError):
                found[name] = added_command(table, f"{path} {name}")
    return found


def _from(name: str, dist: str, taken: Container[str], path: str = "") -> str:
    short = name.rpartition("/")[2]
    hidden = short != name and f"{path} {short}".strip() in taken
    return f"from {dist}; {short!r} alone is the built-in command" if hidden else f"from {dist}"


def owners(table: Mapping[str, LazyCommand], offered: Collection[str] | None = None) -> dict[str, str]:
    """The distribution of ours that brings each command; "" for the core.

    The commands inside a group of ours are among them when a plugin adds to that group. offered: what plugins call
    their commands, where that was asked before.
    """
    from atropos_cli.plugins.commands import offered_commands

    known = {name: row.dist for name, row in table.items()}
    for parent in {
        name.rpartition(" ")[0] for name in (offered_commands() if offered is None else offered) if name not in known
    }:
        if (row := table.get(parent)) is not None and row.target:
            group = as_command(load_target(row.target), parent, None)
            known |= {f"{parent} {name}": "" for name in getattr(group, "commands", {})}
    return known


def plugin_commands(table: Mapping[str, LazyCommand]) -> dict[str, str]:
    """Names under which the commands of plugins run, and their distributions. Reads metadata only."""
    from atropos_cli.plugins.commands import command_entry_points, offered_commands

    offered = offered_commands()
    points = command_entry_points(built_in=owners(table, offered), offered=offered)
    return {name: dist for name, (dist, _) in points.items()}


def load_target(target: str) -> Any:
    """What a row of a table names, imported now."""
    module, _, attr = target.partition(":")
    return getattr(importlib.import_module(module), attr)


def _guarded(command: Any) -> Any:
    """Let only what the command itself calls data reach standard output, not what plugins print while it runs."""
    for sub in getattr(command, "commands", {}).values():
        _guarded(sub)
    if (inner := command.callback) is not None:

        @functools.wraps(inner)
        def outer(*args: Any, **kwargs: Any) -> Any:
            with stdout_to_stderr():
                return inner(*args, **kwargs)

        command.callback = outer
    return command


def _plugin_command(name: str, loaded: Any) -> Any:
    try:
        return as_command(loaded, name.rpartition(" ")[2], None)
    except Exception as error:
        raise PluginError(
            f"command {name!r} of a plugin cannot be used: {type(error).__name__}: {error}",
            hint="the entry point must name a typer.Typer or a function; see atropos plugins list",
        ) from error


def new_app(**settings: Any) -> typer.Typer:
    """A typer application in the plain style all commands share."""
    settings.setdefault("cls", Group)
    settings.setdefault("add_completion", False)
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, **settings)


_COMPLETION = ("install_completion", "show_completion")  # the whole program's, not one command's


def as_command(loaded: Any, name: str, summary: str | None) -> Any:
    """A runnable command made of a typer.Typer, a function or a finished command, with the common options added."""
    if isinstance(loaded, typer.Typer):
        _as_ours(loaded)
        command: Any = typer.main.get_command(loaded)
    elif hasattr(loaded, "make_context"):
        command = loaded
    elif type(loaded).__name__ in _DECLARED:
        command = load_target(_DECLARED[type(loaded).__name__])(loaded)
    elif callable(loaded):
        command = _plain_command(loaded, name=name, cls=getattr(loaded, "command_class", Command))
    else:
        raise TypeError(f"expected a typer.Typer or a function, got {type(loaded).__name__}")
    command.params = [param for param in command.params if param.name not in _COMPLETION]
    command.name = name
    command.short_help = command.short_help or summary
    add_common(command)
    return command


def _as_ours(app: typer.Typer) -> None:
    """Groups of a plugin answer unknown commands as ours do, in plain text, unless they name a class of their own."""
    app.rich_markup_mode = None
    app.info.cls = app.info.cls or Group
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _as_ours(group.typer_instance)


def command_of(function: Callable[..., Any], *, name: str, cls: type[TyperCommand] = Command, **settings: Any) -> Any:
    """One of our own commands, made of one function."""
    return _guarded(_plain_command(function, name=name, cls=cls, **settings))


def _plain_command(
    function: Callable[..., Any], *, name: str, cls: type[TyperCommand] = Command, **settings: Any
) -> Any:
    app = new_app(cls=None)
    app.command(name=name, cls=cls, **settings)(function)
    return typer.main.get_command(app)


def _common(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks.", expose_value=False, show_default=False)
    ] = False,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Use only what is on this machine.", expose_value=False, show_default=False),
    ] = False,
    strict_plugins: Annotated[
        bool,
        typer.Option("--strict-plugins", help="A broken plugin is an error.", expose_value=False, show_default=False),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            help="Say only what came out, and errors.",
            expose_value=False,
            show_default=False,
            callback=on_level,
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Say more: all metrics, every step, logs.",
            expose_value=False,
            show_default=False,
            callback=on_level,
        ),
    ] = False,
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help="Logs of libraries on stderr: debug, info, warning, error.",
            expose_value=False,
            show_default=False,
            callback=on_log_level,
        ),
    ] = None,
) -> None:
    """Switches that every command takes; Session reads the first ones from the arguments."""


def _epilog(own: Callable[[Any, Any], None], ctx: Any, formatter: Any) -> None:
    write_examples(ctx, formatter)
    own(ctx, formatter)


def add_common(command: Any) -> None:
    """Let the command, and every command in it, take the common switches. Names it has already stay its own.

    Each option that takes one value can then be given once.
    """
    refuse_repeats(command)
    command.format_epilog = functools.partial(_epilog, command.format_epilog)
    for sub in getattr(command, "commands", {}).values():
        add_common(sub)
    expand_homes(command)
    taken = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    for param in command_of(_common, name="common").params:
        param.opts = [name for name in param.opts if name not in taken]
        if any(name.startswith("--") for name in param.opts):
            command.params.append(param)
