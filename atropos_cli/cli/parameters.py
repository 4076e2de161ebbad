"""What the options of every command obey: a value is given once, and a `~` in a path is the home folder."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import typer

from atropos_cli.cli import habits
from atropos_cli.console.output import QUIET, VERBOSE
from atropos_cli.errors import UsageError
from atropos_cli.paths import home


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


def expand_homes(command: Any) -> None:
    """A `~` that the shell has left (--output=~/run) is the home folder, wherever an option or argument is a path."""
    for param in command.params:
        words = re.findall(r"[A-Z]+", param.metavar or "")
        if _REMOTE.isdisjoint(param.opts) and not _PATH_WORDS.isdisjoint(words):
            param.process_value = functools.partial(_process_path, param.process_value)


def _process_path(process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return process(ctx, type(value)(home(item) if isinstance(item, str) else item for item in value))
    return process(ctx, home(value) if isinstance(value, str) else value)


def on_level(ctx: typer.Context, param: typer.CallbackParam, value: bool) -> bool:
    """--quiet and --verbose hold from the moment they are read."""
    session = ctx.find_root().obj
    if value and session is not None and not ctx.resilient_parsing:
        session.out.level = VERBOSE if param.name == "verbose" else QUIET
        session.log_from(None)
    return value


def on_log_level(ctx: typer.Context, value: str | None) -> str | None:
    """--log-level, or the level of the environment."""
    session = ctx.find_root().obj
    if session is not None and not ctx.resilient_parsing and (value is not None or ctx.parent is None):
        session.log_from(value)
    return value
