"""From settings to a frozen plan: find the components, check their options, leave nothing open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import atropos_cli
from atropos_cli.config.roles import RoleOptions
from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.plan import Plan, RoleRef
from atropos_cli.domain.refs import ComponentRef, RewardRef
from atropos_cli.domain.selection import Member
from atropos_cli.errors import ComponentNotFound, ConfigError, UsageError
from atropos_cli.io.promptfile import prompt_of
from atropos_cli.models.sources import names_a_path
from atropos_cli.plugins.firstparty import MODELS, pip_install
from atropos_cli.plugins.registry import Registration, Registry
from atropos_cli.ports.environment import Environment
from atropos_cli.rollout.heldout import held_out_plan
from atropos_cli.rollout.mixture import MixConfig, Mixture, find_members
from atropos_cli.rollout.references import (
    component_rewards,
    environment_rewards,
    find_rewards,
    find_tools,
    make_config,
    reference,
    reward_objects,
)
from atropos_cli.rollout.supply import check_whole
from atropos_cli.rollout.tasks import check_split

LOCAL_BACKEND = "local"
SERVER_BACKEND = "openai"
ELSEWHERE = "trajectory-server"
"""Stands for the environments whose groups a trajectory server gives."""
_SAME_SERVER = ("base_url", "api_key_env", "headers")
"""Options of the run's backend that hold for a role's model, where that has no server of its own."""


def build_plan(
    settings: GenSettings, environment: str | None, environment_options: Mapping[str, Any], registry: Registry
) -> Plan:
    """Resolve everything a run needs. Raises PluginError, ConfigError or UsageError; touches no network or disk.

    environment None: the groups are made elsewhere, and come from a trajectory server.
    """
    chosen = _Chosen((), ComponentRef(name=ELSEWHERE))
    if environment is not None:
        env = registry.find("environment", environment)
        check_split(env.load(), settings.split)
        chosen = _chosen(env, settings, environment_options, registry)
    check_selection(settings, chosen.mixture)
    backend = choose_backend(settings, registry)
    for name in settings.tracking.trackers:
        registry.find("tracker", name)
    options = dict(settings.backend_options)
    if settings.delivery.to is not None and backend.name == LOCAL_BACKEND:
        options.setdefault("logprobs", "tempered")  # as the trainer computes them
    plan = Plan(
        atropos_version=atropos_cli.__version__,
        environment=chosen.environment,
        mixture=chosen.mixture,
        prompt=chosen.prompt,
        rewards=chosen.rewards,
        backend=reference(backend, backend.load().Config, options),
        model=settings.model,
        sampling=settings.sampling,
        logprobs=settings.logprobs,
        group_size=settings.group_size,
        split=settings.split,
        seed=settings.seed,
        limit=settings.limit,
        advantage=settings.advantage,
        writer=ComponentRef(name=registry.find("writer", settings.writer).name),
        execution=settings.execution,
        tracking=settings.tracking,
        delivery=settings.delivery,
        prices=settings.prices if isinstance(settings.prices, dict) else {},
        roles=find_roles(settings, chosen.roles, registry, chosen.asked),
        tools=find_tools(settings, chosen.classes, registry),
        selection=settings.selection,
    )
    if plan.delivery.eval_every is not None:
        if plan.delivery.to is None:
            raise UsageError(
                f"--eval-every {plan.delivery.eval_every} counts the steps of a trainer: it needs --to URL",
                hint="atropos eval ENV evaluates without a trainer",
            )
        held_out_plan(plan, registry)
    return plan


@dataclass(frozen=True, slots=True)
class _Chosen:
    """An environment, or a mixture of some, as the plan has it. asked: the roles that its rewards ask."""

    classes: tuple[type[Environment], ...]
    environment: ComponentRef
    rewards: tuple[RewardRef, ...] = ()
    roles: tuple[str, ...] = ()
    mixture: tuple[Member, ...] = ()
    prompt: JsonDict = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)


def _chosen(env: Registration, settings: GenSettings, options: Mapping[str, Any], registry: Registry) -> _Chosen:
    cls = env.load()
    if not (isinstance(cls, type) and issubclass(cls, Mixture)):
        ref = reference(env, cls.Config, options)
        own = environment_rewards(ref, registry)
        rewards = find_rewards(settings.rewards, own, registry, settings.reward_options)
        return _Chosen(
            (cls,),
            ref,
            rewards,
            tuple(cls.roles),
            prompt=prompt_of(cls, None, settings.prompt).data,
            asked=_asked(rewards, own, registry),
        )
    config = make_config(cls.Config, options, owner="a mixture", env_prefix="ATROPOS_ENV__")
    assert isinstance(config, MixConfig)
    members = find_members(settings, config, registry)
    found = [registry.find("environment", one.environment.name, dist=one.environment.dist).load() for one in members]
    # The members say all that the texts did.
    ref = ComponentRef(name=env.name, dist=env.dist, version=env.version)
    asked: dict[str, Any] = {}
    for member, one in zip(members, found, strict=True):
        check_split(one, member.split)
        asked |= _asked(member.rewards, environment_rewards(member.environment, registry), registry)
    roles = tuple(dict.fromkeys(role for one in found for role in one.roles))
    return _Chosen(tuple(found), ref, (), roles, members, asked=asked)


def check_selection(settings: GenSettings, mixture: Sequence[Member]) -> None:
    """Raises UsageError for choices of tasks that exclude each other."""
    chosen = settings.selection
    if settings.execution.shard is not None:
        check_whole(chosen)
    if chosen.curriculum is None and {*chosen.model_fields_set} & {
        "curriculum_target",
        "curriculum_window",
        "curriculum_replay",
    }:
        raise UsageError("--curriculum-... needs --curriculum KEY", hint="--curriculum difficulty")
    sizes = [one.group_size or settings.group_size for one in mixture] or [settings.group_size]
    if chosen.adaptive and min(sizes) < 4:
        raise UsageError("--adaptive needs groups of 4 rollouts or more", hint="--group-size 8")


def choose_backend(settings: GenSettings, registry: Registry, *, exists: bool = True) -> Registration:
    """`auto`: the backend that knows the model's name, a local one for files and folders, else a server.

    exists: must a file or folder be there now? A model that an earlier step of a pipeline trains is not, yet.
    """
    if settings.backend != "auto":
        return registry.find("backend", settings.backend)
    model = settings.model
    if model is not None and "base_url" not in settings.backend_options:
        known = registry.backend_for_model(model)
        if known is not None:
            return known
        if model.casefold() in MODELS:
            raise ComponentNotFound(
                f"model {model!r} runs in this process, and the backend for that is missing",
                hint=f"{pip_install(*MODELS[model.casefold()])}; for a server's model of that name: --base-url URL",
            )
        if Path(model).expanduser().exists():
            return registry.find("backend", LOCAL_BACKEND)
        if names_a_path(model):
            if not exists:
                return registry.find("backend", LOCAL_BACKEND)
            raise ConfigError(
                f"model {model!r} not found: there is no such file or folder",
                hint="check the path; for a server that has the model under this name: --base-url URL",
            )
    return registry.find("backend", SERVER_BACKEND)


def _asked(refs: Sequence[RewardRef], own: Sequence[Any], registry: Registry) -> dict[str, dict[str, Any]]:
    """The roles that the rewards with options ask: reward and default sampling, by role."""
    having = [ref for ref in refs if ref.config or ref.access]
    rewards = component_rewards(having, reward_objects(own), registry)
    return {
        role: {"reward": one.name, "sampling": sampling} for one in rewards for role, sampling in one.roles().items()
    }


def find_roles(
    settings: GenSettings, own: Sequence[str], registry: Registry, asked: Mapping[str, Any] | None = None
) -> dict[str, RoleRef]:
    """Who plays the environment's roles, those of rewards (`asked`) and those that were named."""
    asked = asked or {}
    for name, about in asked.items():
        if name not in settings.roles and not settings.role_options.get(name):
            raise UsageError(
                f"reward {about['reward']!r} has no model to ask",
                hint=f"--role.{name}.model NAME and --role.{name}.base-url URL; or --role {name}: the policy judges",
            )
    names = dict.fromkeys((*own, *asked, *settings.roles, *settings.role_options))
    return {name: _role(name, settings, registry, asked.get(name, {}).get("sampling", {})) for name in names}


def _role(name: str, settings: GenSettings, registry: Registry, default: Mapping[str, Any]) -> RoleRef:
    options = RoleOptions.model_validate(settings.role_options.get(name, {}))
    given = {key: getattr(options, key) for key in ("temperature", "top_p", "max_tokens")}
    sampling = {**default, **{key: value for key, value in given.items() if value is not None}}
    limits = settings.execution
    ref = RoleRef(
        sampling=settings.sampling.replace(**sampling),
        workers=options.workers or limits.workers,
        retries=limits.retries if options.retries is None else options.retries,
        request_timeout=options.timeout or limits.request_timeout,
        refresh=options.refresh,
    )
    if options.own_model and options.refresh is not None:
        raise UsageError(
            f"role {name!r} has a model of its own, and refresh copies the policy",
            hint=f"give --role.{name}.refresh or its model, not both",
        )
    if not options.own_model:
        if given := options.all_backend_options():
            raise UsageError(
                f"role {name!r} is played by the policy, which has its own {', '.join(sorted(given))}",
                hint=f"add --role.{name}.model or --role.{name}.base-url",
            )
        return ref
    wanted = {"backend": options.backend, "model": options.model, "backend_options": options.all_backend_options()}
    backend = choose_backend(settings.replace(**wanted), registry)
    given = options.all_backend_options()
    if options.base_url is None and backend.name == choose_backend(settings, registry).name:
        given = {key: settings.backend_options[key] for key in _SAME_SERVER if key in settings.backend_options} | given
    own = reference(backend, backend.load().Config, given)
    found: RoleRef = ref.replace(backend=own, model=options.model)
    return found


def runs_here(model: str) -> bool:
    """Does the name mean a model that a process of ours loads, whatever servers there are?"""
    return model.casefold() in MODELS or names_a_path(model) or Path(model).expanduser().exists()
