"""From settings to a frozen TrainPlan: which trainer, on what, judged by which suites."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from atropos_cli.sdk import AtroposError, ConfigError, DataError, Environment, Method, UsageError
from atropos_cli.sdk.data import home, is_remote
from atropos_cli.sdk.engine import (
    LOCAL_BACKEND,
    SERVER_BACKEND,
    GenSettings,
    Registry,
    RolloutTracking,
    build_plan,
    find_rewards,
    make_config,
    names_a_file,
    public_options,
)
from atropos_cli.sdk.jobs import core_version
from atropos_cli.sdk.planning import read_environment_text
from atropos_cli.sdk.records import check_data, plain_name, read_train_plan, suite_file
from atropos_cli.sdk.runs import ComponentRef, Plan
from atropos_cli.sdk.training import EvalSuite, Trainer, TrainPlan
from atropos_cli.sdk.trajectories import Pull
from atropos_training.asyncchecks import check_async
from atropos_training.settings import TrainSettings

NEW_POLICY = "new"
"""The model of a plan whose trainer makes a policy by itself, and is given none to begin with."""
_SUITE_SETTINGS = ("split", "limit", "samples", "temperature", "max_tokens", "seed")


def build_train_plan(
    method: Method,
    settings: GenSettings,
    train: TrainSettings,
    options: Mapping[str, Mapping[str, Any]],
    registry: Registry,
    resumed: Path | None = None,
) -> tuple[TrainPlan, Trainer]:
    """Resolve a training run. Raises AtroposError; reads no data and loads no model.

    options: the given ones of "env" and "trainer", by option name. resumed: the folder of the run that is resumed.
    """
    trainer_ref, trainer = make_trainer(train.trainer, options.get("trainer", {}), registry)
    _check_trainer(method, trainer, trainer_ref.name, settings, train)
    settings, train, own = _proposed(trainer, method, settings, train, resumed)
    if own:
        trainer_ref, trainer = make_trainer(train.trainer, {**options.get("trainer", {}), **own}, registry)
    tracking = train.over(settings.tracking)
    for name in tracking.trackers:
        registry.find("tracker", name)
    settings = _sampling(settings, trainer)
    if trainer.plays and not train.evals and trainer.default_suite:
        train = train.model_copy(update={"evals": (f"{train.env}:{trainer.default_suite}",)})
    rollouts = _rollouts(settings, train, options.get("env", {}), registry)
    plan = TrainPlan(
        atropos_version=core_version,
        method=method.name,
        learns=method.learns,
        trainer=trainer_ref.replace(config=_without(trainer_ref.config, trainer.access)),
        access={name: value for name, value in trainer_ref.config.items() if name in trainer.access},
        model=settings.model or (NEW_POLICY if trainer.plays else ""),
        data=tuple(path if is_remote(path) else str(Path(home(path))) for path in train.data),
        rollouts=rollouts,
        pull=None if train.source is None else _pull(train.source, train.off_policy),
        rewards=find_rewards(settings.rewards, (), registry, settings.reward_options)
        if train.data and method.learns == "groups"
        else (),
        seed=settings.seed,
        group_timeout=settings.execution.group_timeout,
        steps=train.steps,
        epochs=train.epochs,
        prompts_per_step=train.prompts_per_step,
        async_steps=train.async_steps,
        suites=_suites(settings, train, options.get("env", {}), registry),
        eval_every=train.eval_every,
        save_every=train.save_every,
        keep_checkpoints=train.keep_checkpoints,
        accept_changed_data=train.accept_changed_data,
        health=train.health,
        **tracking.model_dump(),
    )
    if plan.async_steps:
        check_async(plan, trainer)
    _check_groups(plan, trainer, registry)
    return plan, trainer


def _check_trainer(method: Method, trainer: Trainer, name: str, settings: GenSettings, train: TrainSettings) -> None:
    """Can this trainer do what is asked for? Raises UsageError."""
    if settings.model is None and method.learns != "own" and not trainer.plays:
        raise UsageError("no model to train is named", hint="--model smollm2, a folder, or a name on the model hub")
    if method.name not in trainer.methods:
        raise UsageError(f"trainer {name!r} does not do {method.name}", hint=f"it does: {', '.join(trainer.methods)}")
    _check_sources(method, settings, train, trainer.default_suite)
    _check_epochs(trainer, name, train)
    if trainer.plays and (train.data or train.source):
        raise UsageError(f"trainer {name!r} plays an environment: it takes no --data or --from", hint="--env NAME")


def _check_groups(plan: TrainPlan, trainer: Trainer, registry: Registry) -> None:
    """Can the trainer take the groups that the environment says it makes? Raises ConfigError."""
    rollouts = plan.rollouts
    if rollouts is None or plan.pull is not None or not trainer.equal_groups:
        return
    others = [name for name, role in rollouts.roles.items() if role.backend is not None or role.refresh is not None]
    parts = [member.environment for member in rollouts.mixture] or [rollouts.environment]
    for part in parts:
        cls: type[Environment] = registry.find("environment", part.name, dist=part.dist).load()
        config = make_config(cls.Config, part.config, owner=part.name, env_prefix="ATROPOS_ENV__")
        why = cls.varied_groups(config, others)
        if why is not None:
            able = _taking_all_groups(plan.method, registry)
            raise ConfigError(
                f"{part.name}: {why}; the trainer {plan.trainer.name} takes one group of {rollouts.group_size} "
                "rollouts from each task",
                hint=f"--trainer {' or '.join(able)}" if able else f"other options of {part.name}",
            )


def _taking_all_groups(method: str, registry: Registry) -> list[str]:
    """The trainers of a method that take groups of any number and size, of those that load."""
    found = []
    for one in registry.registrations("trainer"):
        with contextlib.suppress(AtroposError):
            if method in [known.name for known in one.spec.methods] and not one.load().equal_groups:
                found.append(one.name)
    return found


def make_trainer(name: str, options: Mapping[str, Any], registry: Registry) -> tuple[ComponentRef, Trainer]:
    """A trainer with its options checked, and the reference that a plan keeps of it."""
    registration = registry.find("trainer", name)
    cls = registration.load()
    config = make_config(cls.Config, options, owner=f"trainer {registration.name!r}", env_prefix="ATROPOS_TRAINER__")
    reference = ComponentRef(
        name=registration.name,
        dist=registration.dist,
        version=registration.version,
        config=public_options(config),
    )
    trainer: Trainer = cls(config)
    return reference, trainer


def _proposed(
    trainer: Trainer, method: Method, settings: GenSettings, train: TrainSettings, resumed: Path | None
) -> tuple[GenSettings, TrainSettings, Mapping[str, Any]]:
    """Values derived from a trainer's options (a preset, say) unless another was given; its own options too.

    A trainer that has something to propose has a method propose(method, given, *, live) -> (run, options).
    given: the given ones of group_size, prompts_per_step, steps, eval_every and the sampling parameters; to a trainer
    that plays its environment also `env`, and `resumed`, the plan of the run that is resumed, or None.
    run: values for some of those that were not; options: values for options of its own.
    """
    propose = getattr(trainer, "propose", None)
    if propose is None:
        return settings, train, {}
    sampling = settings.sampling
    places: dict[str, BaseModel] = dict.fromkeys(type(sampling).model_fields, sampling)
    places |= {"group_size": settings, "prompts_per_step": train, "steps": train, "eval_every": train}
    given = {name: getattr(place, name) for name, place in places.items() if name in place.model_fields_set}
    if trainer.plays:
        given |= {"env": train.env, "resumed": _stored_plan(resumed)}
    run, options = propose(method.name, given, live=train.env is not None or train.source is not None)
    run = {name: value for name, value in run.items() if name not in given}
    own = {name: run.pop(name) for name in ("prompts_per_step", "steps", "eval_every") if name in run}
    if own:
        train = train.model_copy(update=own)
    size = {"group_size": run.pop("group_size")} if "group_size" in run else {}
    if run or size:
        settings = settings.model_copy(update={**size, "sampling": sampling.model_copy(update=run)})
    return settings, train, options


def _stored_plan(folder: Path | None) -> TrainPlan | None:
    """The plan of a run; None where there is none, or none that can be read: the run is refused for that later."""
    if folder is not None:
        with contextlib.suppress(DataError):
            return read_train_plan(folder / "plan.json")
    return None


def _check_sources(method: Method, settings: GenSettings, train: TrainSettings, suite: str) -> None:
    how = settings.execution
    if how.cache or how.cache_dir is not None:
        raise UsageError(
            "train takes no cached replies: they would not be the trained weights' own",
            hint="leave out --cache and --cache-dir; gen and eval take them",
        )
    if how.max_cost is not None:
        raise UsageError(
            "train has no --max-cost: it samples from the weights it trains", hint="bound the run with --steps"
        )
    if train.eval_every is not None and not train.evals and not suite:
        raise UsageError(
            f"--eval-every {train.eval_every}: there is no suite to evaluate on", hint="--eval ENV, or leave it out"
        )
    if settings.selection.adaptive:
        raise UsageError(
            "train has groups of one size, and --adaptive makes smaller ones",
            hint="gen --adaptive, or --curriculum KEY",
        )
    if settings.selection.curriculum is not None and train.env is None:
        raise UsageError("--curriculum chooses among the tasks of an environment", hint="train grpo --env NAME")
    if method.learns == "own":
        return
    if method.learns == "groups":
        given = [("--env", train.env), ("--data", train.data), ("--from", train.source)]
        named = [name for name, value in given if value]
        if not named:
            raise UsageError(
                f"train {method.name} needs an environment or data",
                hint="--env NAME, or --data FILE with --reward NAME",
            )
        if len(named) > 1:
            raise UsageError(f"{named[0]} and {named[1]} exclude each other", hint="train on one of them")
        if train.source is not None:
            _check_pulled(train)
        return
    if method.learns == "steps":
        if train.env is None:
            raise UsageError(
                f"train {method.name} needs an environment",
                hint="--env gymnasium:CartPole-v1; language models learn by atropos train grpo",
            )
        return
    if train.env is not None:
        raise UsageError(
            f"train {method.name} learns from stored data, not from an environment",
            hint=f"atropos gen {train.env} first, then --data RUN; or train grpo --env {train.env}",
        )
    if not train.data:
        raise UsageError(f"train {method.name} needs data", hint="--data RUN or FILE")


def _check_epochs(trainer: Trainer, name: str, train: TrainSettings) -> None:
    if train.epochs == 1:
        return
    if train.steps is not None:
        raise UsageError(
            f"--steps {train.steps} and --epochs {train.epochs} both say how long to train", hint="give one"
        )
    if not trainer.epochs:
        raise UsageError(f"trainer {name!r} knows no --epochs", hint="say how long to train by --steps")


def _pull(url: str, off_policy: int) -> Pull:
    try:
        return Pull(url=url, off_policy=off_policy)
    except ValidationError as error:
        raise UsageError(f"--from {url}: {error.errors(include_url=False)[0]['msg']}") from error


def _check_pulled(train: TrainSettings) -> None:
    if train.steps is None:
        raise UsageError("--from needs --steps: a trajectory server has no last batch", hint="add --steps N")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("--from trains in one process", hint="leave out --processes")


def _without(config: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


def _sampling(settings: GenSettings, trainer: Trainer) -> GenSettings:
    """Sample from the weights in this process, unless a server is named, or by the trainer's own backend.

    Log-probabilities are as trainers compute them; the policy of a trainer that plays has none.
    """
    if trainer.plays:
        alone = {"tracking": RolloutTracking(), "backend_options": {}, "logprobs": "off"}
        return settings.model_copy(update={"backend": trainer.backend, **alone})
    backend = settings.backend
    if trainer.backend is not None and backend not in ("auto", trainer.backend):
        raise UsageError(
            f"--trainer {trainer.name} samples by the backend {trainer.backend!r} only",
            hint=f"leave out --backend {backend}",
        )
    if backend == "auto" and trainer.backend is not None:
        backend = trainer.backend
    if backend == "auto":
        backend = SERVER_BACKEND if "base_url" in settings.backend_options else LOCAL_BACKEND
    given = dict(settings.backend_options)
    if backend == LOCAL_BACKEND:
        given.setdefault("logprobs", "tempered")
    alone = {"tracking": RolloutTracking()}  # the rollouts are the training run's
    return settings.model_copy(update={"backend": backend, "backend_options": given, **alone})


def _rollouts(
    settings: GenSettings, train: TrainSettings, environment: Mapping[str, Any], registry: Registry
) -> Plan | None:
    """The plan of live rollouts; for grpo on data one whose rewards score the completions."""
    if train.env is None and train.source is None:
        return None
    if settings.group_size < 2:
        raise ConfigError(
            f"--group-size {settings.group_size}: a group of one has nothing to be compared with",
            hint="--group-size 2 or more",
        )
    wanted: dict[str, Any] = {} if "logprobs" in settings.model_fields_set else {"logprobs": "require"}
    if train.async_steps:  # a resumed run reads the groups of its steps again
        wanted |= {"writer": "jsonl"}
    if train.source is not None:  # each batch is in its file before the server hears so
        wanted |= {"writer": "jsonl", "execution": settings.execution.replace(fsync="group")}
    return build_plan(settings.model_copy(update=wanted), train.env, environment, registry)


def _suites(
    settings: GenSettings, train: TrainSettings, environment: Mapping[str, Any], registry: Registry
) -> tuple[EvalSuite, ...]:
    suites: dict[str, EvalSuite] = {}
    for text in train.evals:
        suite = _suite(text, settings, train, environment, registry)
        if (other := suites.get(suite_file(suite.name))) is not None:
            raise UsageError(
                f"two suites are called {suite.name!r}"
                if other.name == suite.name
                else f"the suites {other.name!r} and {suite.name!r} differ in signs only that files cannot have",
                hint="write a name in front of one: --eval LABEL=ENV",
            )
        suites[suite_file(suite.name)] = suite
    return tuple(suites.values())


def _suite(
    text: str, settings: GenSettings, train: TrainSettings, environment: Mapping[str, Any], registry: Registry
) -> EvalSuite:
    """[LABEL=]ENV[:option=value,...]: greedy, on held-out tasks where the environment has some."""
    said = read_environment_text(text, "--eval", registry.families())
    label, name, options = said.label, said.name, said.options
    own = {key: options.pop(key) for key in _SUITE_SETTINGS if key in options}
    registration = registry.find("environment", name)
    cls = registration.load()
    same = train.env is not None and registry.find("environment", train.env) == registration
    if same:
        options = {**environment, **options}
    samples = own.get("samples", 1)
    default = 0.0 if samples == 1 else settings.sampling.temperature
    sampling = {
        "temperature": own.get("temperature", default),
        "max_tokens": own.get("max_tokens", settings.sampling.max_tokens),
    }
    held_out = next((split for split in ("test", "valid") if split in cls.splits), cls.splits[0])
    changes = {
        "group_size": samples,
        "limit": own.get("limit"),
        "split": own.get("split", held_out),
        "seed": own.get("seed", settings.seed),
        "rewards": (),
        "advantage": "none",
        "logprobs": "off",
        "selection": {},
        "prompt": settings.prompt if same else None,
    }
    try:
        merged = GenSettings.model_validate(
            {
                **settings.model_dump(),
                **changes,
                "sampling": {**settings.sampling.model_dump(), **sampling},
            }
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"--eval {text!r}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    known = plain_name(name) if names_a_file(name) else registration.name
    return EvalSuite(name=label or known, plan=build_plan(merged, name, options, registry))


def derived(trainer: Trainer, plan: TrainPlan) -> dict[str, Any]:
    """What the trainer derives from the plan, after checking it and the data.

    Raises ConfigError or DataError for what cannot work.
    """
    check_data(plan)
    found = trainer.check(plan)
    return {key: value.model_dump() if isinstance(value, BaseModel) else value for key, value in found.items()}
