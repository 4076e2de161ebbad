"""The command of one training method: its flags are made from five models, as those of `gen` are from three.

run options (TrainSettings)   rollouts (GenSettings)   --env.NAME   --backend.NAME   the trainer's own
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.cli.environments import (
    EnvironmentCommand,
    gen_buckets,
    gen_settings,
    pick_backend,
    settle,
)
from atropos_cli.cli.lazy import SWITCHES, add_common, command_of
from atropos_cli.cli.rewards import reward_buckets, reward_flags
from atropos_cli.cli.roles import role_buckets, role_flags
from atropos_cli.config import commands
from atropos_cli.config.settings import TrainSettings
from atropos_cli.console.session import Session
from atropos_cli.jobs.order import is_planner

if TYPE_CHECKING:
    from atropos_cli.config.resolve import Resolved
    from atropos_cli.config.settings import GenSettings
    from atropos_cli.config.sources import Bucket
    from atropos_cli.console.commands import Flag

_LIVE_ONLY = frozenset({"roles", "group_size", "limit", "split", "rewards", "advantage", "writer", "logprobs"})
"""Settings of rollouts that mean nothing to sft and dpo."""
_STORED_ONLY = frozenset({"num-generations"})
_SINGULAR = {"evals": "eval", "trackers": "track", "tags": "tag"}
OUTPUT = "Output"
FOOTER = (
    "Everything can be set in ./atropos.toml as well, in the sections [train], [trainer], [env] and [sampling], "
    "and by ATROPOS_TRAIN__*, ATROPOS_TRAINER__* and ATROPOS_ENV__* variables."
)


class TrainOptions(TrainSettings):
    """The settings of a training, where its run goes, and how many processes carry it out."""

    output: Path | None = commands.option(
        None, "Run folder; default: runs/METHOD-DATE-TIME.", panel=OUTPUT, short="o", metavar="RUN"
    )
    resume: bool = commands.option(False, "Go on from the newest checkpoint.", panel=OUTPUT)
    overwrite: bool = commands.option(False, "Replace the run, once the new one is done.", panel=OUTPUT)
    dry_run: bool = commands.option(False, "Check everything that needs no model, print the plan, stop.", panel=OUTPUT)
    processes: int = commands.option(
        1, "Processes on this host, each with the whole model and a GPU.", panel="Several GPUs", metavar="N", ge=1
    )


@dataclass(frozen=True)
class TrainChosen:
    """What a training command was called with, and everything that was configured."""

    session: Session
    method: str
    resolved: Resolved

    @property
    def settings(self) -> GenSettings:
        """How rollouts are made, with the backend's options filled in."""
        return gen_settings(self.resolved)

    @property
    def train(self) -> TrainOptions:
        """What to train on, for how long, judged by what, and where the run goes."""
        settings: Any = self.resolved.models["train"]
        result: TrainOptions = settings
        return result

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The options given for the environment and the trainer."""
        return {name: self.resolved.given.get(name, {}) for name in ("env", "trainer")}


TrainAction = Callable[..., int | None]
"""action(chosen, *, own options...) -> exit code."""


def build_train_command(session: Session, method: str, args: Sequence[str], action: TrainAction, *, doc: str) -> Any:
    """The command of a method, with the flags of the environment, backend and trainer that the arguments name."""
    from atropos_cli.cli.options import signature_of
    from atropos_cli.config.buckets import train_bucket
    from atropos_cli.console.commands import entries_of, set_signature

    train = train_bucket(TrainOptions)
    said = _glanced(args, train)
    preset = _preset(method, args, said)
    if preset is not None:
        said = _glanced(args, train, preset)
    buckets = _buckets(session, args, train, said)
    extra = signature_of(action)
    flags = _flags(buckets, extra, method, stored="data" in said or method != "grpo")

    def call(**given: Any) -> int | None:
        own = {key: given[key] for key in extra}
        resolved = settle(buckets, given.get("config"), entries_of(flags, given), preset)
        if preset is not None:
            session.out.note(f"nothing was named, so a small model learns sums: {preset} (--model, --env or --data)")
        return action(TrainChosen(session, method, resolved), **own)

    set_signature(call, [*extra.values(), *(flag.as_parameter() for flag in flags)])
    command = command_of(
        call,
        name=method,
        cls=EnvironmentCommand,
        help=doc,
        short_help=doc.split("\n", 1)[0],
        epilog=FOOTER,
        context_settings={"token_normalize_func": lambda name: name.replace("_", "-")},
    )
    command.makes_plan = is_planner(action)
    add_common(command)
    return command


def _preset(method: str, args: Sequence[str], said: Mapping[str, str]) -> Path | None:
    """The settings of a `train grpo` that names neither model, environment nor data."""
    from atropos_cli.resources import laptop_preset

    wanted = method == "grpo" and not {"--help", "-h"} & set(args)
    return laptop_preset() if wanted and said.keys().isdisjoint(("env", "data", "model")) else None


def _buckets(session: Session, args: Sequence[str], train: Bucket, said: Mapping[str, str]) -> list[Bucket]:
    from atropos_cli.config.buckets import trainer_bucket

    registry = session.registry
    name = said.get("env")
    registration = registry.find("environment", name) if name else None
    environment = registration.load() if registration is not None else None
    given_backend = any(word.startswith(("--base-url", "--backend")) for word in args)
    picked = pick_backend(registry, args, lenient=True) if given_backend else None
    backend = None if picked is None else picked.backend
    if backend is None:
        known = [item for item in registry.registrations("backend") if item.name == "local"]
        if known:
            backend = known[0]
        elif (picked := pick_backend(registry, args, lenient=True)) is not None:
            backend = picked.backend
    buckets = gen_buckets(registry, registration, environment, backend)
    lenient = bool({"--help", "-h"} & set(args))
    buckets += reward_buckets(registry, args, environment.rewards if environment is not None else (), lenient=lenient)
    buckets += role_buckets(args, environment.roles if environment is not None else (), lenient=lenient)
    installed = {item.name for item in registry.registrations("trainer")}
    if not installed and lenient:
        return [*buckets, train]  # help is there before a trainer is
    trainer = registry.find("trainer", said.get("trainer") or train.model.model_fields["trainer"].default)  # type: ignore[union-attr]
    names = tuple(dict.fromkeys((trainer.name, trainer.qualified)))
    return [*buckets, train, trainer_bucket(trainer.load().Config, names, installed)]


_GLANCED = ("env", "data", "model", "trainer")


def _glanced(args: Sequence[str], train: Bucket, preset: Path | None = None) -> dict[str, str]:
    """Those of _GLANCED that flags, variables and files name, before anything is parsed."""
    from atropos_cli.cli.habits import glance
    from atropos_cli.config.buckets import SETTINGS, settings_bucket
    from atropos_cli.config.problems import Origin
    from atropos_cli.config.sources import Entry, collect

    flags = [
        Entry(SETTINGS if name == "model" else train.name, (name,), value, Origin("flag", f"--{name}"), text=True)
        for name in _GLANCED
        for value in glance(args, name)
    ]
    configs = glance(args, "config")
    config = Path(configs[-1]) if configs else None
    said = collect([settings_bucket(), train], config=config, flags=flags, preset=preset)
    return {
        entry.path[0]: str(entry.value)
        for entry in said.entries
        if entry.bucket in (SETTINGS, train.name) and entry.path[0] in _GLANCED
    }


def _flags(buckets: Sequence[Bucket], extra: dict[str, inspect.Parameter], method: str, *, stored: bool) -> list[Flag]:
    """Flat names for run options and hyperparameters, whichever comes first; the rest by their long names.

    stored: prompts are stored ones. For live groups TRL's names of their numbers stand for ours.
    """
    from atropos_cli.cli.options import TRACKING_PANEL, backend_flags, declared, settings_flags
    from atropos_cli.console.commands import Flag
    from atropos_cli.domain.tracking import Tracking

    by_name = {bucket.name: bucket for bucket in buckets}
    taken = {"help", *SWITCHES}
    for parameter in extra.values():
        taken |= {name.lstrip("-") for name in declared(parameter)}
    flags: list[Flag] = []

    def add(flag: Flag, long: str | None = None) -> None:
        names = tuple(name for name in flag.names if name not in taken)
        names = (*names, long) if long is not None else names
        if names:
            taken.update(names)
            taken.update(f"no-{name}" for name in names if flag.option.kind == "bool")
            flags.append(replace(flag, names=names))

    for number, option in enumerate(by_name["train"].options):
        if method != "grpo" and option.path == ("env",):
            continue
        panel = "Training" if len(option.path) == 1 else "Warnings and stop rules"
        panel = TRACKING_PANEL if option.key in Tracking.model_fields else option.shown.get("panel", panel)
        add(Flag("train", option, (_SINGULAR.get(option.key, option.flag),), panel, f"train_{number}"))
    for flag in settings_flags(by_name["settings"]):
        if flag.option.path[0] == "tracking":
            continue  # those of [train] are the command's
        if method == "grpo" or flag.option.path[0] not in _LIVE_ONLY:
            add(flag)
    trainer = by_name.get("trainer")
    for number, option in enumerate(trainer.options if trainer is not None else ()):
        if trainer is not None and not option.secret:
            long = f"trainer.{option.flag}"
            short = () if option.flag in _STORED_ONLY and not stored else (option.flag,)
            add(Flag("trainer", option, short, f"Options of {trainer.label}", f"trainer_{number}"), long)
    for flag in backend_flags(by_name["backend"]):
        add(flag)
    for flag in [*reward_flags(buckets), *role_flags(buckets)] if method == "grpo" else ():
        add(flag)
    environment = by_name["env"]
    for number, option in enumerate(environment.options if method == "grpo" else ()):
        if not option.secret:
            panel = f"Options of {environment.label}"
            add(Flag("env", option, (f"env.{option.flag}",), panel, f"env_{number}"))
    return flags
