"""Command functions that take their options as one model: `with_flags` makes the flags.

    @with_flags("filter", FilterOptions)
    def filter_rollouts(inputs: Inputs, *, options: FilterOptions, session: Session) -> int: ...

is what typer makes a command of. Each flag is handed to the parser as text; the model checks it later, together with
files and variables, so that a value is judged by one rule wherever it comes from.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from atropos_cli.config.commands import command_bucket, resolve_command
from atropos_cli.config.options import Option, choice_text
from atropos_cli.config.problems import Origin
from atropos_cli.config.resolve import Resolved
from atropos_cli.config.sources import Bucket, Entry
from atropos_cli.console.command import Command
from atropos_cli.console.session import session_of

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file (TOML or YAML) instead of ./atropos.toml."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
_INJECTED = ("ctx", "options", "session", "resolved", "config")
_MORE = "atropos_cli.more_options"


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of one bucket as a flag. names: without dashes. parameter: its name inside the parser."""

    bucket: str
    option: Option
    names: tuple[str, ...]
    panel: str | None
    parameter: str

    def as_parameter(self, stop: Callable[..., Any] | None = None) -> inspect.Parameter:
        """For the signature from which typer makes the parser. None means not given. stop: called at once."""
        option = self.option
        short = [f"-{option.shown['short']}"] if "short" in option.shown else []
        if option.kind == "bool":
            declared = [f"--{name}/--{negated(name)}" for name in self.names]
            kind: Any = bool | None
        else:
            declared = [f"--{name}" for name in self.names]
            kind = list[str] | None if option.kind == "list" else str | None
        info = typer.Option(
            *declared,
            *short,
            help=help_text(option),
            metavar=None if option.kind == "bool" else option.type_text,
            show_default=False,
            hidden="hidden" in option.shown,
            rich_help_panel=self.panel,
            autocompletion=_choices(option),
            callback=stop,
            is_eager=stop is not None,
        )
        return inspect.Parameter(
            self.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
        )


def help_text(option: Option) -> str:
    """Description, default and range of an option."""
    notes = []
    if option.required:
        notes.append("required")
    elif option.default_text is not None and option.default is not False:
        notes.append(f"default: {option.default_text}")
    if option.range:
        notes.append(option.range)
    if option.kind == "list":
        notes.append("repeatable")
    return f"{option.description}  [{'; '.join(notes)}]".strip() if notes else option.description


def _choices(option: Option) -> Callable[[str], list[str]] | None:
    if not option.choices:
        return None
    return lambda incomplete: [text for text in map(choice_text, option.choices) if text.startswith(incomplete)]


def negated(name: str) -> str:
    """The name that turns a switch off."""
    head, _, last = name.rpartition(".")
    return f"{head}.no-{last}" if head else f"no-{last}"


def entries_of(flags: Sequence[Flag], given: Mapping[str, Any]) -> list[Entry]:
    """What was given, as configuration entries of the highest precedence."""
    entries = []
    for flag in flags:
        value = given.get(flag.parameter)
        if value is None or value == []:
            continue
        name = negated(flag.names[0]) if value is False else flag.names[0]
        origin = Origin("flag", f"--{name}")
        text = flag.option.kind != "bool"
        entries.append(
            Entry(flag.bucket, flag.option.path, tuple(value) if isinstance(value, list) else value, origin, text)
        )
    return entries


def set_signature(function: Any, parameters: Sequence[inspect.Parameter]) -> None:
    """Give a function the parameters from which typer makes its parser."""
    function.__signature__ = inspect.Signature(list(parameters))
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def command_flags(bucket: Bucket) -> list[Flag]:
    """--NAME for each option of a command."""
    return [
        Flag(bucket.name, option, (option.flag,), option.shown.get("panel"), f"option_{number}")
        for number, option in enumerate(bucket.options)
        if not option.secret
    ]


def bucket_of(command: Any) -> Bucket | None:
    """The options of a command function that `with_flags` made."""
    found = getattr(command, "bucket", None)
    return found if isinstance(found, Bucket) else None


def with_flags(
    section: str,
    model: type[BaseModel],
    stops: Mapping[str, Callable[[], None]] | None = None,
    cls: type[Command] = Command,
    *,
    others: Collection[str] = (),
    own_only: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a command of a function. section: of the configuration, "filter", or "env-check" for `env check`.

    The function names what it wants: `options` (the model), `session`, `resolved` (the model's values with their
    origins), `config` (the file that --config names), `ctx`. What other parameters it has are parameters of typer:
    the command's arguments, and --json.
    stops: switches that print something and end the command, whatever else is given. cls: of the command, for one
    that reads its words in a way of its own. others: keys of the section that other commands take, where several
    share one. own_only: for commands that execute an earlier plan; mistakes in other sections of a file do not matter.
    """
    bucket = command_bucket(section, model, others, own_only=own_only)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        made: Any = command_with(function, bucket, stops or {})
        made.command_class = cls
        return made  # type: ignore[no-any-return]

    return decorate


def command_with(
    function: Callable[..., Any], bucket: Bucket, stops: Mapping[str, Callable[[], None]] = MappingProxyType({})
) -> Callable[..., Any]:
    """`with_flags` for options that are at hand."""
    own = inspect.signature(function, eval_str=True).parameters
    flags = command_flags(bucket)

    def call(ctx: typer.Context, config: Path | None, **given: Any) -> Any:
        resolved = resolve_for(ctx, bucket, config, entries_of(flags, given))
        options = resolved.models[bucket.name]
        for name, stop in stops.items():
            if getattr(options, name):
                stop()
                raise typer.Exit
        known = {"ctx": ctx, "session": session_of(ctx), "options": options, "resolved": resolved, "config": config}
        return function(**{name: known[name] if name in known else given[name] for name in own})

    kept = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, item in own.items() if name not in _INJECTED]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    config = inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption)
    arguments = [item for item in kept if _is_argument(item)]
    switches = [item for item in kept if not _is_argument(item)]
    shown = [flag.as_parameter(_stopping(stops.get(flag.option.key))) for flag in flags]
    set_signature(call, [context, *arguments, *shown, *switches, config])
    call.__doc__, call.__name__, call.__module__ = function.__doc__, function.__name__, function.__module__
    call.bucket = bucket  # type: ignore[attr-defined]
    return call


def _stopping(stop: Callable[[], None] | None) -> Callable[[bool | None], None] | None:
    if stop is None:
        return None

    def callback(value: bool | None) -> None:
        if value:
            stop()
            raise typer.Exit

    return callback


def resolve_for(ctx: Any, bucket: Bucket, config: Path | None, entries: Sequence[Entry]) -> Resolved:
    """The options of a command, and of what `with_more` has added."""
    buckets, more = ctx.meta.get(_MORE, ((), ()))
    return resolve_command(bucket, config, (*entries, *more), tuple(buckets))


def _is_argument(parameter: inspect.Parameter) -> bool:
    from typer.models import ArgumentInfo

    return any(isinstance(item, ArgumentInfo) for item in getattr(parameter.annotation, "__metadata__", ()))


def with_more(ctx: Any, buckets: Sequence[Bucket], entries: Sequence[Entry]) -> None:
    """For a command class whose flags depend on the arguments: let `resolved` have these buckets too."""
    ctx.meta[_MORE] = (buckets, entries)
