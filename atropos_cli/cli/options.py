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
from typing import Annotated, Any

import typer

from atropos_cli.cli.lazy import SWITCHES
from atropos_cli.cli.rewards import reward_flags
from atropos_cli.cli.roles import role_flags
from atropos_cli.config.buckets import BACKEND, ENVIRONMENT, SETTINGS, SHARED_BACKEND
from atropos_cli.config.sources import Bucket
from atropos_cli.console.commands import Flag, command_flags, negated

SETTINGS_PANEL = "Run options"
TRACKING_PANEL = "Tracking"
_PANELS = {"sampling": "Sampling", "execution": "Execution", "tracking": TRACKING_PANEL, "selection": "Choice of tasks"}
ALIASES = {"rewards": "reward", "roles": "role", "trackers": "track", "tags": "tag"}
"""Repeatable settings whose flag reads better in the singular."""


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
        clash = option.flag in taken or (option.kind == "bool" and negated(option.flag) in taken)
        names = (long,) if clash else (option.flag, long)
        flags.append(Flag(bucket.name, option, names, f"Options of {bucket.label}", f"{ENVIRONMENT}_{number}"))
    return flags


def all_flags(
    buckets: Sequence[Bucket], extra: Mapping[str, inspect.Parameter], own: Sequence[Bucket] = ()
) -> list[Flag]:
    """The flags of all buckets, the environment's first. extra, own: the command's own parameters and options."""
    by_name = {bucket.name: bucket for bucket in buckets}
    core: list[Flag] = [flag for bucket in own for flag in command_flags(bucket)]
    if SETTINGS in by_name:
        core += settings_flags(by_name[SETTINGS])
    if BACKEND in by_name:
        core += backend_flags(by_name[BACKEND])
    taken = taken_names(extra) | {*SHARED_BACKEND}
    for flag in core:
        taken |= {*flag.names, *(negated(name) for name in flag.names if flag.option.kind == "bool")}
    environment = environment_flags(by_name[ENVIRONMENT], taken) if ENVIRONMENT in by_name else []
    return [*environment, *reward_flags(buckets), *role_flags(buckets), *core]


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


def taken_names(extra: Mapping[str, inspect.Parameter]) -> set[str]:
    """The names that no flag made from a model can have. extra: the command's own parameters."""
    return {"help", *SWITCHES} | {name.lstrip("-") for parameter in extra.values() for name in declared(parameter)}


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
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "options"
    }
