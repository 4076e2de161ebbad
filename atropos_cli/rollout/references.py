"""From names and options to references that a plan keeps, and from those to components. Everything is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from atropos_cli.config.buckets import reward_prefix, tools_prefix
from atropos_cli.config.secrets import secret_fields, secrets_from_environment
from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.refs import ComponentRef, RewardRef, ToolsRef
from atropos_cli.errors import AtroposError, ConfigError, PluginError, UsageError
from atropos_cli.plugins.registry import Registration, Registry
from atropos_cli.plugins.shapes import rewards_problems
from atropos_cli.ports.backend import NoOptions
from atropos_cli.ports.environment import Environment, GameEnvironment
from atropos_cli.ports.reward import Reward
from atropos_cli.ports.toolsource import ToolSource


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


def environment_rewards(ref: ComponentRef, registry: Registry) -> Sequence[Reward | str]:
    """The rewards of a plan's environment, with the options that it has there.

    Raises ConfigError for options, such as a secret that is missing here, only where they decide on the rewards.
    """
    cls: type[Environment] = registry.find("environment", ref.name, dist=ref.dist).load()
    return rewards_with(cls, environment_config(cls, ref.name, ref.config)) if varied_rewards(cls) else cls.rewards


def varied_rewards(cls: type[Environment]) -> bool:
    """Do the options of an environment decide on its rewards?"""
    default: Any = Environment.rewards_for
    return getattr(cls.rewards_for, "__func__", None) is not default.__func__


def rewards_with(cls: type[Environment], config: BaseModel) -> Sequence[Reward | str]:
    """The rewards of an environment with these options. Raises PluginError for anything else than rewards."""
    try:
        own = cls.rewards_for(config)
    except AtroposError:
        raise
    except Exception as error:
        raise PluginError(f"{cls.__name__}.rewards_for() failed: {type(error).__name__}: {error}") from error
    for problem, hint in rewards_problems(cls.__name__, own, "rewards_for()"):
        raise PluginError(problem, hint=hint)
    return own


def own_rewards(cls: type[Environment], config: BaseModel, registry: Registry) -> list[Reward]:
    """The rewards of an environment with these options, for use outside a plan. Raises PluginError and ConfigError."""
    own = rewards_with(cls, config)
    return component_rewards(find_rewards((), own, registry), reward_objects(own), registry)


def environment_config(cls: type[Environment], name: str, options: Mapping[str, Any]) -> BaseModel:
    """The options of an environment, checked. Raises ConfigError."""
    return make_config(cls.Config, options, owner=f"environment {name!r}", env_prefix="ATROPOS_ENV__")


def reward_objects(own: Sequence[Reward | str]) -> dict[str, Reward]:
    """The rewards that an environment brings along, by their names; the others are installed ones."""
    return {item.name: item for item in own if isinstance(item, Reward)}


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


def reference(registration: Registration, config: type[BaseModel], options: Mapping[str, Any]) -> ComponentRef:
    prefix = "ATROPOS_ENV__" if registration.kind == "environment" else "ATROPOS_BACKEND__"
    validated = make_config(config, options, owner=f"{registration.kind} {registration.name!r}", env_prefix=prefix)
    return ComponentRef(
        name=registration.name,
        dist=registration.dist,
        version=registration.version,
        config=public_options(validated),
    )


def find_rewards(
    wanted: tuple[str, ...], own: Any, registry: Registry, options: Mapping[str, Any] | None = None
) -> tuple[RewardRef, ...]:
    """References for NAME or NAME=WEIGHT texts, or for the environment's own rewards when none are given.

    options: what was given for the rewards that have options, by their names.
    """
    by_name = reward_objects(own)
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


def find_tools(settings: GenSettings, classes: Sequence[type[Environment]], registry: Registry) -> tuple[ToolsRef, ...]:
    """The sources of tools, each with its options checked."""
    game = next((one for one in classes if issubclass(one, GameEnvironment)), None)
    if settings.tools and game is not None:
        raise UsageError(f"environment {game.name!r} is a game, and players have no tools", hint="drop --tools")
    refs: list[ToolsRef] = []
    for text in settings.tools:
        name, colon, target = text.partition(":")
        if not colon or not target.strip():
            raise UsageError(f"--tools {text!r} names no target", hint="give NAME:TARGET, such as mcp:COMMAND")
        registration = registry.find("toolset", name)
        given: Any = settings.tools_options.get(registration.name, {})
        source = make_tools(registration, target, given)
        config = public_options(source.config)
        access = {option: config.pop(option) for option in sorted(source.access) if option in config}
        about = {"dist": registration.dist, "version": registration.version}
        refs.append(ToolsRef(name=registration.name, target=target, config=config, access=access, **about))
        if refs[-1] in refs[:-1]:
            raise UsageError(f"--tools {text!r} is given twice", hint="give each source once")
    return tuple(refs)


def make_tools(registration: Registration, target: str, options: Mapping[str, Any]) -> ToolSource:
    """A source of tools, not opened yet. Raises ConfigError."""
    cls, prefix = registration.load(), f"ATROPOS_{tools_prefix(registration.name)}"
    source: ToolSource = cls(
        target, make_config(cls.Config, options, owner=f"toolset {registration.name!r}", env_prefix=prefix)
    )
    return source


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
