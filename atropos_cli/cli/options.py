"""Flags made from models: what `atropos gen ENV` accepts, and what was given.

Every flag is handed to the parser as text; the models check it later, together with files and
variables, so that a value is judged by one rule wherever it comes from.

    --workers 32                 a setting of the command
    --max-steps 50               an option of the environment
    --env.max-steps 50           the same; the only way when a setting has the name already
    --backend.timeout 5          an option of the backend
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from atropos_cli.cli.habits import spellings
from atropos_cli.cli.lazy import SWITCHES
from atropos_cli.cli.rewards import reward_flags
from atropos_cli.config.buckets import BACKEND, ENVIRONMENT, SETTINGS, SHARED_BACKEND
from atropos_cli.config.options import Option, choice_text
from atropos_cli.config.problems import Origin
from atropos_cli.config.sources import Bucket, Entry

SETTINGS_PANEL = "Run options"
TRACKING_PANEL = "Tracking"
_PANELS = {"sampling": "Sampling", "execution": "Execution", "tracking": TRACKING_PANEL}
ALIASES = {"rewards": "reward", "trackers": "track", "tags": "tag"}
"""Repeatable settings whose flag reads better in the singular."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of one bucket as a flag. `parameter` is its name inside the parser."""

    bucket: str
    option: Option
    names: tuple[str, ...]
    panel: str
    parameter: str

    def as_parameter(self) -> inspect.Parameter:
        """For the signature from which typer makes the parser. None means not given."""
        option = self.option
        if option.kind == "bool":
            declared = [f"--{name}/--{_negated(name)}" for name in self.names]
            kind: Any = bool | None
        else:
            declared = [f"--{name}" for name in self.names]
            kind = list[str] | None if option.kind == "list" else str | None
        info = typer.Option(
            *declared,
            help=help_text(option),
            metavar=None if option.kind == "bool" else option.type_text,
            show_default=False,
            rich_help_panel=self.panel,
            autocompletion=_choices(option),
        )
        return inspect.Parameter(
            self.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
        )


def help_text(option: Option) -> str:
    """Description, default and range of an option."""
    notes = []
    if option.required:
        notes.append("required")
    elif option.default_text is not None:
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


def _negated(name: str) -> str:
    head, _, last = name.rpartition(".")
    return f"{head}.no-{last}" if head else f"no-{last}"


def settings_flags(bucket: Bucket) -> list[Flag]:
    """Flat names for the command's own settings: sampling.top_p is --top-p."""
    flags = []
    for number, option in enumerate(bucket.options):
        name = option.path[-1].replace("_", "-")
        names = (ALIASES[name], name) if name in ALIASES else (name,)
        panel = _PANELS.get(option.path[0], SETTINGS_PANEL)
        flags.append(Flag(bucket.name, option, names, panel, f"{SETTINGS}_{number}"))
    return flags


def backend_flags(bucket: Bucket) -> list[Flag]:
    """--backend.NAME for each option of the backend; the most used ones have a short name as well."""
    flags = []
    for number, option in enumerate(bucket.options):
        if option.secret:
            continue
        long = f"backend.{option.flag}"
        names = (option.flag, long) if option.key in SHARED_BACKEND else (long,)
        flags.append(Flag(bucket.name, option, names, f"Options of {bucket.label}", f"{BACKEND}_{number}"))
    return flags


def environment_flags(bucket: Bucket, taken: set[str]) -> list[Flag]:
    """--NAME and --env.NAME for each option of the environment; only the latter when NAME is taken."""
    flags = []
    for number, option in enumerate(bucket.options):
        if option.secret:
            continue
        long = f"env.{option.flag}"
        clash = option.flag in taken or (option.kind == "bool" and _negated(option.flag) in taken)
        names = (long,) if clash else (option.flag, long)
        flags.append(Flag(bucket.name, option, names, f"Options of {bucket.label}", f"{ENVIRONMENT}_{number}"))
    return flags


def all_flags(buckets: Sequence[Bucket], extra: Mapping[str, inspect.Parameter]) -> list[Flag]:
    """The flags of all buckets, the environment's first. `extra`: the command's own parameters."""
    by_name = {bucket.name: bucket for bucket in buckets}
    core: list[Flag] = []
    if SETTINGS in by_name:
        core += settings_flags(by_name[SETTINGS])
    if BACKEND in by_name:
        core += backend_flags(by_name[BACKEND])
    taken = {"help", *SWITCHES, *SHARED_BACKEND}
    for parameter in extra.values():
        taken |= {name.lstrip("-") for name in declared(parameter)}
    for flag in core:
        taken |= {*flag.names, *(_negated(name) for name in flag.names if flag.option.kind == "bool")}
    environment = environment_flags(by_name[ENVIRONMENT], taken) if ENVIRONMENT in by_name else []
    return [*environment, *reward_flags(buckets), *core]


def foreign_flags(buckets: Sequence[Bucket]) -> dict[str, inspect.Parameter]:
    """The short backend flags that the backend in use lacks: accepted, so that the message can say why not."""
    backend = next(bucket for bucket in buckets if bucket.name == BACKEND)
    if backend.model is None:
        return {}
    known = {option.key for option in backend.options}
    return {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(f"--{name.replace('_', '-')}", hidden=True)],
        )
        for name in SHARED_BACKEND
        if name not in known
    }


def declared(parameter: inspect.Parameter) -> list[str]:
    """The option names an annotated parameter declares."""
    names = [f"--{parameter.name.replace('_', '-')}"]
    for item in getattr(parameter.annotation, "__metadata__", ()):
        words = [getattr(item, "default", None), *(getattr(item, "param_decls", None) or ())]
        names += [part for word in words if isinstance(word, str) for part in word.split("/")]
    return names


def signature_of(action: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword parameters of an action, which are its command's own options."""
    signature = inspect.signature(action, eval_str=True)
    return {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def entries_of(flags: Sequence[Flag], given: Mapping[str, Any]) -> list[Entry]:
    """What was given, as configuration entries of the highest precedence."""
    entries = []
    for flag in flags:
        value = given.get(flag.parameter)
        if value is None or value == []:
            continue
        origin = Origin("flag", f"--{flag.names[0]}")
        text = flag.option.kind != "bool"
        entries.append(
            Entry(flag.bucket, flag.option.path, tuple(value) if isinstance(value, list) else value, origin, text)
        )
    return entries


def glance(args: Sequence[str], name: str) -> list[str]:
    """The values of a flag among arguments that are not parsed yet, whatever other tools call it."""
    found = []
    names = {f"--{name}", *spellings(f"--{name}")}
    words = list(args[: args.index("--")] if "--" in args else args)
    for position, word in enumerate(words):
        head, equals, value = word.partition("=")
        if head.replace("_", "-") in names:
            if equals:
                found.append(value)
            elif position + 1 < len(words):
                found.append(words[position + 1])
    return found


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file (TOML or YAML) instead of ./atropos.toml."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
