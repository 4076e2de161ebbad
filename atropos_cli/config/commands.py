"""Options of commands as fields of a model: one statement for flag, file key, variable, help and `config show`.

    class FilterOptions(CommandOptions):
        min_score: float | None = option(None, "Keep score >= this.", panel="Scores")

is --min-score, `min_score` in the section [filter] of a file, ATROPOS_FILTER__MIN_SCORE, and a line of
`atropos config show filter`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from atropos_cli.config.options import Option, options_of, parse_text
from atropos_cli.config.resolve import Resolved, resolve
from atropos_cli.config.secrets import export_secrets
from atropos_cli.config.sections import variable_prefix
from atropos_cli.config.sources import Bucket, Collected, Entry, collect, explicit_file
from atropos_cli.domain.base import Frozen
from atropos_cli.errors import AtroposError, ConfigError


class CommandOptions(Frozen):
    """Base of the options of a command. Each field is made by `option`; models may be combined by inheritance."""


RESERVED = frozenset({"config", "json", "help", "debug", "offline", "strict-plugins", "quiet", "verbose", "log-level"})
"""Flags of every command."""
_SHOWN = ("flag", "short", "metavar", "hidden", "variable")


def option(default: Any, text: str, *, panel: str | None = None, **more: Any) -> Any:
    """A field with what its flag needs besides.

    panel: section of the help. more: flag, the long name where it is not the field's ("finish-reason" for a list of
    finish_reasons); short, one letter; metavar, what help calls the value; hidden=True, not in the help; variable,
    another one that sets it, without ATROPOS_; and the checks of pydantic's Field, as ge=1.
    """
    shown = {"panel": panel, **{name: more.pop(name) for name in _SHOWN if name in more}}
    return Field(
        default=default,
        description=text,
        json_schema_extra={name: value for name, value in shown.items() if value is not None},
        **more,
    )


def command_bucket(
    section: str, model: type[BaseModel], others: Collection[str] = (), *, own_only: bool = False
) -> Bucket:
    """[SECTION] of a file and ATROPOS_SECTION__NAME, for the command of that name: "filter", "env-check".

    others, own_only: see Bucket.
    Raises TypeError for a field whose flag every command has already.
    """
    options = _in_order(model)
    for item in options:
        if item.flag in RESERVED:
            raise TypeError(f"{model.__name__}.{item.key}: every command has --{item.flag}; choose another name")
    return Bucket(
        name=section,
        label=f"atropos {section}",
        model=model,
        section=section,
        prefix=variable_prefix(section),
        options=options,
        shared={item.shown["variable"].lower(): item.path for item in options if "variable" in item.shown},
        others=frozenset(others) - {item.path[0] for item in options},
        own_only=own_only,
    )


def _in_order(model: type[BaseModel]) -> tuple[Option, ...]:
    """The options of the bases from left to right, then the model's own; pydantic has the last base first."""
    places = {name: place for place, name in enumerate(dict.fromkeys(_names(model)))}
    return tuple(sorted(options_of(model), key=lambda item: places[item.path[0]]))


def _names(model: type) -> Iterator[str]:
    for base in model.__bases__:
        yield from _names(base)
    yield from vars(model).get("__annotations__", {})


def resolve_command(
    bucket: Bucket, config: Path | None = None, flags: tuple[Entry, ...] = (), more: tuple[Bucket, ...] = ()
) -> Resolved:
    """The options of one command, and those of `more`, from files, variables and flags. Raises ConfigError, UsageError.

    Unknown keys are errors wherever they are; values are checked for this command alone, so that a mistake in the
    settings of `gen` stops no other command.
    """
    wanted = (bucket, *more)
    said = _collected(wanted, config, flags)
    names = {item.name for item in wanted}
    resolved = resolve(wanted, Collected([entry for entry in said.entries if entry.bucket in names], said.problems))
    export_secrets(resolved)
    return resolved


def said_of(bucket: Bucket, name: str, config: Path | None) -> list[str]:
    """The texts that files and variables give for an option, before anything is parsed; mistakes are ignored."""
    try:
        values = [item.value for item in _collected((bucket,), config).entries if item.path == (name,)]
    except AtroposError:
        return []
    last = values[-1] if values else ()
    items = parse_text(bucket.by_path[name,], last) if isinstance(last, str) else last
    return [str(item) for item in items] if isinstance(items, list | tuple) else [str(items)]


def _collected(wanted: Sequence[Bucket], config: Path | None, flags: Sequence[Entry] = ()) -> Collected:
    """What is said of these buckets; keys of the other sections are known as well."""
    from atropos_cli.config.buckets import backend_bucket, environment_bucket, settings_bucket

    names = {bucket.name for bucket in wanted}
    top = settings_bucket()
    own_only = any(bucket.own_only for bucket in wanted)
    if own_only:
        top = replace(top, model=None)
    others = (top, environment_bucket(None), backend_bucket(None))
    buckets = [*(other for other in others if other.name not in names), *wanted]
    try:
        return collect(buckets, config=config, flags=flags)
    except ConfigError:
        if not own_only or explicit_file(config) is not None:
            raise
        return collect(buckets, flags=flags, files=False)
