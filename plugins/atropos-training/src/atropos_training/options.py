"""The command of one training method: its flags are made from five models, as those of `gen` are from three.

run options (TrainSettings)   rollouts (GenSettings)   --env.NAME   --backend.NAME   the trainer's own
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import METHODS, Method
from atropos_cli.sdk.commands import Session, option
from atropos_cli.sdk.planning import (
    SETTINGS,
    gen_buckets,
    gen_settings,
    is_planner,
    makes_plan,
    named,
    pick_backend,
    resolve_settings,
    reward_buckets,
    reward_flags,
    role_buckets,
    role_flags,
    settings_bucket,
    settings_command,
    tools_buckets,
)
from atropos_training.settings import TRAIN, TrainSettings, train_bucket, trainer_bucket

if TYPE_CHECKING:
    from atropos_cli.sdk.authoring import Registration
    from atropos_cli.sdk.engine import GenSettings, Registry
    from atropos_cli.sdk.planning import Bucket, Flag, Resolved
    from atropos_cli.sdk.training import Learns

_LIVE_ONLY = frozenset(
    {"roles", "tools", "group_size", "limit", "split", "rewards", "advantage", "writer", "logprobs", "selection"}
    | {"prompt"}
)
"""Settings of rollouts that mean nothing to methods that learn from rows."""
_LIVE = ("groups", "steps")
"""What methods learn from that play an environment."""
_ROWS = frozenset({"env", "source", "off_policy", "async_steps"})
"""Settings of a training that methods without live groups have no use for."""
_STEPS = frozenset({"data", "source", "off_policy", "async_steps"})
"""Settings of a training that methods whose trainer plays by itself have no use for."""
_OWN = _ROWS | {"data", "evals", "eval_every", "prompts_per_step"}
"""And those of a training that reads data of its own, of which settings of rollouts only two mean something."""
_OWN_SETTINGS = frozenset({"model", "seed"})
_STORED_ONLY = frozenset({"num-generations"})
_SINGULAR = {"evals": "eval", "trackers": "track", "tags": "tag", "source": "from"}
OUTPUT = "Output"
PRESET = Path(__file__).with_name("laptop.toml")
"""The settings of a training that names neither model, environment nor data."""
FOOTER = (
    "Everything can be set in ./atropos.toml as well, in the sections [train], [trainer], [env] and [sampling], "
    "and by ATROPOS_TRAIN__*, ATROPOS_TRAINER__* and ATROPOS_ENV__* variables."
)


class TrainOptions(TrainSettings):
    """The settings of a training, where its run goes, and how many processes carry it out."""

    output: Path | None = option(
        None, "Run folder; default: runs/METHOD-DATE-TIME.", panel=OUTPUT, short="o", metavar="RUN"
    )
    resume: bool = option(False, "Go on from the newest checkpoint.", panel=OUTPUT)
    overwrite: bool = option(False, "Replace the run, once the new one is done.", panel=OUTPUT)
    dry_run: bool = option(False, "Check everything that needs no model, print the plan, stop.", panel=OUTPUT)
    processes: int = option(
        1, "Processes on this host, each with the whole model and a GPU.", panel="Several GPUs", metavar="N", ge=1
    )


@dataclass(frozen=True)
class TrainChosen:
    """What a training command was called with, and everything that was configured.

    trainer: the one that does the method, where none is named and the default does not.
    """

    session: Session
    method: Method
    trainer: str | None
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
        return result if self.trainer is None else result.model_copy(update={"trainer": self.trainer})

    @property
    def options(self) -> dict[str, dict[str, Any]]:
        """The options given for the environment and the trainer."""
        return {name: self.resolved.given.get(name, {}) for name in ("env", "trainer")}


TrainAction = Callable[..., int | None]
"""action(chosen, *, own options...) -> exit code."""


def methods_of(session: Session) -> dict[str, Method]:
    """The methods that `train` knows, by name: those that several trainers have, and those of installed trainers."""
    own = [method for item in session.registry.registrations("trainer") for method in item.spec.methods]
    return {**METHODS, **{method.name: method for method in own if method.name not in METHODS}}


def build_train_command(session: Session, method: Method, args: Sequence[str], action: TrainAction) -> Any:
    """The command of a method, with the flags of the environment, backend and trainer that the arguments name."""
    from atropos_cli.sdk.planning import entries_of, signature_of

    train = train_bucket(TrainOptions)
    said = _glanced(args, train)
    preset = _preset(method.name, args, said)
    if preset is not None:
        said = _glanced(args, train, preset)
    trainer = None if "trainer" in said else _other_trainer(session, method, said)
    buckets = _buckets(session, args, train, said if trainer is None else {**said, "trainer": trainer})
    extra = signature_of(action)
    flags = _flags(buckets, extra, method.learns, stored="data" in said or method.learns not in _LIVE)

    def call(**given: Any) -> int | None:
        own = {key: given[key] for key in extra}
        resolved = resolve_settings(buckets, given.get("config"), entries_of(flags, given), preset)
        if preset is not None:
            session.out.note(f"nothing was named, so a small model learns sums: {preset} (--model, --env or --data)")
        return action(TrainChosen(session, method, trainer, resolved), **own)

    if is_planner(action):
        makes_plan(call)
    return settings_command(
        call,
        [*extra.values(), *(flag.as_parameter() for flag in flags)],
        name=method.name,
        doc=method.summary,
        short=method.summary,
        epilog=FOOTER,
    )


def _other_trainer(session: Session, method: Method, said: Mapping[str, str]) -> str | None:
    """A trainer that names the method in its manifest, where the default one does not; None: the default.

    Where no model is named, the environment may have a trainer for its own policies.
    """
    registry = session.registry
    if "env" in said and "model" not in said:
        own = registry.find("environment", said["env"]).load().trainer
        found = [item for item in registry.registrations("trainer") if own in (item.name, item.qualified)]
        if found and method.name in (one.name for one in found[0].spec.methods):
            return found[0].qualified
    offers = [
        item
        for item in session.registry.registrations("trainer")
        if method.name in (own.name for own in item.spec.methods)
    ]
    default = TrainSettings.model_fields["trainer"].default
    if not offers or any(default in (item.name, item.qualified) for item in offers):
        return None
    return offers[0].qualified


def _preset(method: str, args: Sequence[str], said: Mapping[str, str]) -> Path | None:
    """PRESET for a `train grpo` that names neither model, environment nor data."""
    given = {word.partition("=")[0] for word in args}
    wanted = method == "grpo" and not {"--help", "-h", "--from"} & given
    return PRESET if wanted and said.keys().isdisjoint(_OWNERS.keys() - {"trainer"}) else None


def _buckets(session: Session, args: Sequence[str], train: Bucket, said: Mapping[str, str]) -> list[Bucket]:

    registry = session.registry
    name = said.get("env")
    registration = registry.find("environment", name) if name else None
    environment = registration.load() if registration is not None else None
    installed = {item.name for item in registry.registrations("trainer")}
    lenient = bool({"--help", "-h"} & set(args))
    trainer = None
    if installed or not lenient:  # help is there before a trainer is
        trainer = registry.find("trainer", said.get("trainer") or train.model.model_fields["trainer"].default)  # type: ignore[union-attr]
    backend = _backend(registry, args, None if trainer is None else trainer.load().backend)
    buckets = gen_buckets(registry, registration, environment, backend)
    buckets += reward_buckets(registry, args, environment, lenient=lenient)
    buckets += role_buckets(args, environment.roles if environment is not None else (), lenient=lenient)
    buckets += tools_buckets(registry, args, lenient=lenient)
    if trainer is None:
        return [*buckets, train]
    names = tuple(dict.fromkeys((trainer.name, trainer.qualified)))
    return [*buckets, train, trainer_bucket(trainer.load().Config, names, installed)]


def _backend(registry: Registry, args: Sequence[str], own: str | None) -> Registration | None:
    """The backend whose options apply: the trainer's own, the one that the arguments name, or `local`."""
    if own is not None:
        return registry.find("backend", own)
    given = any(word.startswith(("--base-url", "--backend")) for word in args)
    picked = pick_backend(registry, args, lenient=True) if given else None
    if picked is not None:
        return picked.backend
    known = [item for item in registry.registrations("backend") if item.name == "local"]
    if known:
        return known[0]
    picked = pick_backend(registry, args, lenient=True)
    return None if picked is None else picked.backend


_OWNERS = {"env": TRAIN, "data": TRAIN, "source": TRAIN, "model": SETTINGS, "trainer": TRAIN}


def _glanced(args: Sequence[str], train: Bucket, preset: Path | None = None) -> dict[str, str]:
    """Those of _OWNERS that flags, variables and files name, before anything is parsed."""
    return named(args, [settings_bucket(), train], _OWNERS, preset)


def _flags(
    buckets: Sequence[Bucket], extra: dict[str, inspect.Parameter], learns: Learns, *, stored: bool
) -> list[Flag]:
    """Flat names for run options and hyperparameters, whichever comes first; the rest by their long names.

    stored: prompts are stored ones. For live groups TRL's names of their numbers are names of ours.
    """
    from atropos_cli.sdk.engine import Tracking
    from atropos_cli.sdk.planning import TRACKING_PANEL, Flag, backend_flags, settings_flags, taken_names

    live, own = learns in _LIVE, learns == "own"
    useless = {"groups": frozenset(), "steps": _STEPS, "own": _OWN}.get(learns, _ROWS)
    by_name = {bucket.name: bucket for bucket in buckets}
    taken = taken_names(extra)
    flags: list[Flag] = []

    def add(flag: Flag, long: str | None = None) -> None:
        names = tuple(name for name in flag.names if name not in taken)
        names = (*names, long) if long is not None else names
        if names:
            taken.update(names)
            taken.update(f"no-{name}" for name in names if flag.option.kind == "bool")
            flags.append(replace(flag, names=names))

    for number, setting in enumerate(by_name["train"].options):
        if setting.path[0] in useless:
            continue
        panel = "Training" if len(setting.path) == 1 else "Warnings and stop rules"
        panel = TRACKING_PANEL if setting.key in Tracking.model_fields else setting.shown.get("panel", panel)
        add(Flag("train", setting, (_SINGULAR.get(setting.key, setting.flag),), panel, f"train_{number}"))
    for flag in settings_flags(by_name["settings"]):
        if flag.option.path[0] in ("tracking", "delivery"):
            continue  # the trackers are those of [train], and rollouts of a training stay with it
        if flag.option.path[0] in _OWN_SETTINGS if own else live or flag.option.path[0] not in _LIVE_ONLY:
            add(flag)
    trainer = by_name.get("trainer")
    for number, setting in enumerate(trainer.options if trainer is not None else ()):
        if trainer is not None and not setting.secret:
            long = f"trainer.{setting.flag}"
            short = () if setting.flag in _STORED_ONLY and not stored else (setting.flag,)
            add(Flag("trainer", setting, short, f"Options of {trainer.label}", f"trainer_{number}"), long)
    for flag in () if own else backend_flags(by_name["backend"]):
        add(flag)
    for flag in [*reward_flags(buckets), *role_flags(buckets)] if live else ():
        add(flag)
    environment = by_name["env"]
    for number, setting in enumerate(environment.options if live else ()):
        if not setting.secret:
            panel = f"Options of {environment.label}"
            add(Flag("env", setting, (f"env.{setting.flag}",), panel, f"env_{number}"))
    return flags
