"""Commands that are imported when they run, so that `atropos --help` stays quick whatever is installed.

A command is a row of a static table: name, section of the help, "module:attr", one line. The attribute
is a typer.Typer or a function. Commands of plugins (entry-point group `atropos.commands`) are
listed from the metadata of the installed distributions, without importing them.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from atropos_cli.cli import habits
from atropos_cli.cli.examples import write_examples
from atropos_cli.console.command import Command
from atropos_cli.console.output import QUIET, VERBOSE
from atropos_cli.errors import ComponentNotFound, PluginError, UsageError
from atropos_cli.paths import home
from atropos_cli.streams import stdout_to_stderr

PLUGIN_SECTION = "Commands of plugins"
SWITCHES = ("debug", "strict-plugins", "quiet", "verbose", "log-level")
"""Flags of every command whose names an option made from a model cannot have."""


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
        return self.list_commands(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None:
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
    """The top of the command line. Subclasses give `table`."""

    table: dict[str, LazyCommand] = {}  # noqa: RUF012 (replaced, never changed)

    def list_commands(self, ctx: Any) -> list[str]:
        installed = plugin_commands(self.table)
        ours = [name for name, command in self.table.items() if not command.dist or name in installed]
        return [*ours, *(name for name in installed if name not in self.table)]

    def known_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys((*self.table, *plugin_commands(self.table))))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = self.table.get(cmd_name)
        if known is not None and not known.dist:
            return _guarded(as_command(load_target(known.target), cmd_name, known.summary))
        from atropos_cli.plugins.commands import command_clashes, load_command

        if cmd_name in plugin_commands(self.table):
            loaded = load_command(cmd_name, built_in=owners(self.table))
            if known is not None:
                return _guarded(as_command(loaded, cmd_name, known.summary))
            return _plugin_command(cmd_name, loaded)
        if known is not None:
            from atropos_cli.plugins.firstparty import pip_install

            raise ComponentNotFound(
                f"{ctx.command_path} {cmd_name} comes with {known.dist}, which is not installed",
                hint=pip_install(known.dist),
            )
        return load_command(cmd_name) if cmd_name in command_clashes() else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        installed = plugin_commands(self.table)
        for name, command in self.table.items():
            if not command.dist or name in installed:
                sections.setdefault(command.section, []).append((name, command.summary))
        for name, dist in installed.items():
            if name in self.table:
                continue
            short = name.rpartition("/")[2]
            hidden = f"; {short!r} alone is the built-in command" if short in self.table else ""
            sections.setdefault(PLUGIN_SECTION, []).append((name, f"from {dist}{hidden}"))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def owners(table: Mapping[str, LazyCommand]) -> dict[str, str]:
    """The distribution of ours that brings each command; "" for the core."""
    return {name: command.dist for name, command in table.items()}


def plugin_commands(table: Mapping[str, LazyCommand]) -> dict[str, str]:
    """Names under which the commands of plugins run, and their distributions. Reads metadata only."""
    from atropos_cli.plugins.commands import command_entry_points

    return {name: dist for name, (dist, _) in command_entry_points(built_in=owners(table)).items()}


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
        return as_command(loaded, name, None)
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
    elif hasattr(loaded, "launcher"):
        command = load_target("atropos_cli.cli.commands.job:launcher_group")(loaded.launcher, loaded.help)
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


def _on_level(ctx: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    session = ctx.find_root().obj
    if value and session is not None and not ctx.resilient_parsing:
        session.out.level = VERBOSE if param.name == "verbose" else QUIET
        session.log_from(None)
    return value


def _on_log_level(ctx: typer.Context, value: str | None) -> str | None:
    session = ctx.find_root().obj
    if session is not None and not ctx.resilient_parsing and (value is not None or ctx.parent is None):
        session.log_from(value)
    return value


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
            callback=_on_level,
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
            callback=_on_level,
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
            callback=_on_log_level,
        ),
    ] = None,
) -> None:
    """Switches that every command takes; Session reads the first ones from the arguments."""


def refuse_repeats(command: Any) -> None:
    """Let an option with one value be given once: of two values the parser would take the last without a word.

    Names that other tools have for an option are understood before.
    """
    make_parser = command.make_parser

    def strict_parser(ctx: Any) -> Any:
        parser = make_parser(ctx)
        parse_args = parser.parse_args

        def parse_once(args: list[str]) -> Any:
            words = habits.translated(ctx, args)
            parsed = parse_args(args=list(words))
            if not ctx.resilient_parsing:
                _check_once(parsed[2], words, ctx.command_path)
            return parsed

        parser.parse_args = parse_once
        return parser

    command.make_parser = strict_parser


def _check_once(order: Sequence[Any], words: Sequence[str], path: str) -> None:
    """order: the parameters as they came. A switch may be repeated, but not turned on and off."""
    seen = set()
    for param in order:
        one_valued = param.param_type_name == "option" and not (param.multiple or getattr(param, "count", False))
        if not one_valued or (param.is_flag and {*words}.isdisjoint(param.secondary_opts)):
            continue
        if param.is_flag and {*words}.isdisjoint(param.opts):
            continue
        if param.name in seen:
            name = " / ".join(map(_long_name, filter(None, (param.opts, param.secondary_opts))))
            raise UsageError(f"{name} is given twice, and it takes one value", hint=f"give it once; {path} --help")
        seen.add(param.name)


def _long_name(names: Sequence[str]) -> str:
    return next((name for name in names if name.startswith("--")), names[0])


# What the metavar of an option says when its value is a path of this machine.
_PATH_WORDS = frozenset({"PATH", "FILE", "DIR", "FOLDER", "RUN", "OTHER", "INPUT", "PLAN"})
_REMOTE = frozenset({"--cwd", "--remote-python"})  # may be a path of another machine


def _expand_homes(command: Any) -> None:
    """A `~` that the shell has left (--output=~/run) is the home folder, wherever an option or argument is a path."""
    for param in command.params:
        words = re.findall(r"[A-Z]+", param.metavar or "")
        if _REMOTE.isdisjoint(param.opts) and not _PATH_WORDS.isdisjoint(words):
            param.process_value = functools.partial(_process_path, param.process_value)


def _process_path(process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return process(ctx, type(value)(home(item) if isinstance(item, str) else item for item in value))
    return process(ctx, home(value) if isinstance(value, str) else value)


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
    _expand_homes(command)
    taken = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    for param in command_of(_common, name="common").params:
        param.opts = [name for name in param.opts if name not in taken]
        if any(name.startswith("--") for name in param.opts):
            command.params.append(param)
