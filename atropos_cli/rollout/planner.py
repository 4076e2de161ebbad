"""From settings to a frozen plan: find the components, check their options, leave nothing open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

import atropos_cli
from atropos_cli.config.buckets import reward_prefix
from atropos_cli.config.roles import RoleOptions
from atropos_cli.config.secrets import secret_fields, secrets_from_environment
from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.plan import ComponentRef, Plan, RewardRef, RoleRef
from atropos_cli.errors import ComponentNotFound, ConfigError, PluginError, UsageError
from atropos_cli.models.sources import names_a_path
from atropos_cli.plugins.firstparty import MODELS, pip_install
from atropos_cli.plugins.registry import Registration, Registry
from atropos_cli.ports.backend import NoOptions
from atropos_cli.ports.reward import Reward
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
    played = ComponentRef(name=ELSEWHERE)
    rewards: tuple[RewardRef, ...] = ()
    roles: dict[str, RoleRef] = {}
    if environment is not None:
        env = registry.find("environment", environment)
        env_class = env.load()
        check_split(env_class, settings.split)
        played = _reference(env, env_class.Config, environment_options)
        rewards = find_rewards(settings.rewards, env_class.rewards, registry, settings.reward_options)
        roles = find_roles(settings, env_class.roles, registry)
    backend = choose_backend(settings, registry)
    for name in settings.tracking.trackers:
        registry.find("tracker", name)
    options = dict(settings.backend_options)
    if settings.delivery.to is not None and backend.name == LOCAL_BACKEND:
        options.setdefault("logprobs", "tempered")  # as the trainer computes them
    return Plan(
        atropos_version=atropos_cli.__version__,
        environment=played,
        rewards=rewards,
        backend=_reference(backend, backend.load().Config, options),
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
        roles=roles,
    )


def make_config(model: type[BaseModel], options: Mapping[str, Any], *, owner: str, env_prefix: str) -> BaseModel:
    """Validate a component's options; secrets that a plan leaves out come from the environment variables.

    Raises ConfigError listing every wrong key at once, with close matches for unknown ones.
    """
    values = {**secrets_from_environment(model, env_prefix), **options}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(error, model, owner))) from error


def public_options(config: BaseModel) -> JsonDict:
    """A component's options as JSON, without secrets."""
    return config.model_dump(mode="json", exclude=secret_fields(type(config)))


def component_rewards(refs: Sequence[RewardRef], own: Mapping[str, Reward], registry: Registry) -> list[Reward]:
    """A plan's rewards as objects: `own` are the environment's, all others installed ones."""
    found: list[Reward] = []
    for ref in refs:
        reward = own.get(ref.name)
        if reward is None:
            reward = _load(registry.find("reward", ref.name, dist=ref.dist))
        found.append(configured(reward, {**ref.config, **ref.access}).named(ref.name, ref.weight))
    return found


def configured(reward: Reward, options: Mapping[str, Any]) -> Reward:
    """The reward with its options. Raises ConfigError for those it does not take."""
    if reward.Config is NoOptions and not options:
        return reward
    return reward.configured(_reward_config(reward, options))


def named_rewards(own: Sequence[Any], registry: Registry) -> list[Reward]:
    """The rewards without options that an environment gives by name, as NAME or NAME=WEIGHT, with their weights."""
    rewards = []
    for item in own:
        if not isinstance(item, Reward):
            name, _, weight = str(item).partition("=")
            reward = _load(registry.find("reward", name))
            if reward.Config is NoOptions:
                rewards.append(reward.named(name, float(weight) if weight else reward.weight))
    return rewards


def _reference(registration: Registration, config: type[BaseModel], options: Mapping[str, Any]) -> ComponentRef:
    prefix = "ATROPOS_ENV__" if registration.kind == "environment" else "ATROPOS_BACKEND__"
    validated = make_config(config, options, owner=f"{registration.kind} {registration.name!r}", env_prefix=prefix)
    return ComponentRef(
        name=registration.name,
        dist=registration.dist,
        version=registration.version,
        config=public_options(validated),
    )


def choose_backend(settings: GenSettings, registry: Registry) -> Registration:
    """`auto`: the backend that knows the model's name, a local one for files and folders, else a server."""
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
            raise ConfigError(
                f"model {model!r} not found: there is no such file or folder",
                hint="check the path; for a server that has the model under this name: --base-url URL",
            )
    return registry.find("backend", SERVER_BACKEND)


def find_roles(settings: GenSettings, own: Sequence[str], registry: Registry) -> dict[str, RoleRef]:
    """Who plays the environment's roles and those that were named."""
    return {
        name: _role(name, settings, registry) for name in dict.fromkeys((*own, *settings.roles, *settings.role_options))
    }


def _role(name: str, settings: GenSettings, registry: Registry) -> RoleRef:
    options = RoleOptions.model_validate(settings.role_options.get(name, {}))
    sampling = {
        key: value for key in ("temperature", "top_p", "max_tokens") if (value := getattr(options, key)) is not None
    }
    limits = settings.execution
    ref = RoleRef(
        sampling=settings.sampling.replace(**sampling),
        workers=options.workers or limits.workers,
        retries=limits.retries if options.retries is None else options.retries,
        request_timeout=options.timeout or limits.request_timeout,
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
    reference = _reference(backend, backend.load().Config, given)
    found: RoleRef = ref.replace(backend=reference, model=options.model)
    return found


def runs_here(model: str) -> bool:
    """Does the name mean a model that a process of ours loads, whatever servers there are?"""
    return model.casefold() in MODELS or names_a_path(model) or Path(model).expanduser().exists()


def find_rewards(
    wanted: tuple[str, ...], own: Any, registry: Registry, options: Mapping[str, Any] | None = None
) -> tuple[RewardRef, ...]:
    """References for NAME or NAME=WEIGHT texts, or for the environment's own rewards when none are given.

    options: what was given for the rewards that have options, by their names.
    """
    by_name = {reward.name: reward for reward in own if isinstance(reward, Reward)}
    if not wanted:
        refs = [_own_reference(item, registry, options or {}) for item in own]
    else:
        refs = [_wanted_reference(text, by_name, registry, options or {}) for text in wanted]
    names = [ref.name for ref in refs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UsageError(f"reward {doubled[0]!r} is given twice", hint="give each reward once, with one weight")
    return tuple(refs)


def _own_reference(item: Any, registry: Registry, options: Mapping[str, Any]) -> RewardRef:
    if isinstance(item, Reward):
        return _with_options(RewardRef(name=item.name, weight=item.weight), item, options)
    return _wanted_reference(str(item), {}, registry, options)


def _wanted_reference(
    text: str, own: Mapping[str, Reward], registry: Registry, options: Mapping[str, Any]
) -> RewardRef:
    name, separator, weight_text = text.rpartition("=")
    weight: float | None = None
    if separator:
        try:
            weight = float(weight_text)
        except ValueError as error:
            raise UsageError(f"reward {text!r}: {weight_text!r} is not a number", hint="give NAME=WEIGHT") from error
    else:
        name = text
    if name in own:
        ref = RewardRef(name=name, weight=own[name].weight if weight is None else weight)
        return _with_options(ref, own[name], options)
    registration = registry.find("reward", name)
    reward = _load(registration)
    ref = RewardRef(
        name=registration.name,
        dist=registration.dist,
        version=registration.version,
        weight=reward.weight if weight is None else weight,
    )
    return _with_options(ref, reward, options)


def _load(registration: Registration) -> Reward:
    reward = registration.load()
    if not isinstance(reward, Reward):
        raise PluginError(f"reward {registration.name!r} is a {type(reward).__name__}, not a Reward")
    return reward


def _with_options(ref: RewardRef, reward: Reward, options: Mapping[str, Any]) -> RewardRef:
    """The reference with the reward's options, checked, those of its access apart."""
    if reward.Config is NoOptions:
        return ref
    config = public_options(_reward_config(reward, options.get(reward.name, {})))
    access = {name: config.pop(name) for name in sorted(reward.access) if name in config}
    found: RewardRef = ref.replace(config=config, access=access)
    return found


def _reward_config(reward: Reward, options: Mapping[str, Any]) -> BaseModel:
    prefix = f"ATROPOS_{reward_prefix(reward.name)}"
    return make_config(reward.Config, options, owner=f"reward {reward.name!r}", env_prefix=prefix)


def _explain(error: ValidationError, model: type[BaseModel], owner: str) -> list[str]:
    lines = []
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            close = get_close_matches(key, model.model_fields, n=1)
            advice = f" (did you mean {close[0]}?)" if close else f" (known: {', '.join(model.model_fields) or 'none'})"
            lines.append(f"{owner} has no option {key!r}{advice}")
        else:
            lines.append(f"{owner}, option {key!r}: {item['msg']}, got {item['input']!r}")
    return lines
