"""Options of rewards on the command line: `--judge.model NAME` for the option `model` of the reward `judge`.

Which rewards a command uses is looked for before its arguments are parsed, as it is done for backends; those that
have options then bring their flags, their section [reward.NAME] and their variables ATROPOS_REWARD__NAME__*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.cli.lazy import Command, command_of
from atropos_cli.errors import AtroposError

if TYPE_CHECKING:
    from atropos_cli.cli.options import Flag
    from atropos_cli.config.resolve import Resolved
    from atropos_cli.config.sources import Bucket, Entry
    from atropos_cli.plugins.registry import Registry

_META = "atropos_cli.reward_options"
_SECOND_NAME = re.compile(r", --reward\.[\w.-]+")


def reward_buckets(
    registry: Registry, args: Sequence[str], own: Iterable[Any] = (), *, lenient: bool = False
) -> list[Bucket]:
    """The option groups of the rewards that are wanted, or of `own` (the environment's) when none are named.

    lenient: for help; a reward that cannot be loaded is passed over. Otherwise raises as the registry does.
    """
    from atropos_cli.config.buckets import reward_bucket
    from atropos_cli.ports.backend import NoOptions
    from atropos_cli.ports.reward import Reward

    own = list(own)
    by_name = {reward.name: reward for reward in own if isinstance(reward, Reward)}
    installed = frozenset(item.name for item in registry.registrations("reward"))
    found: dict[str, Bucket] = {}
    for item in _wanted(args) or own:
        name = item.name if isinstance(item, Reward) else _name(str(item))
        try:
            reward = by_name[name] if name in by_name else registry.find("reward", name).load()
        except AtroposError:
            if lenient:
                continue
            raise
        if isinstance(reward, Reward) and reward.Config is not NoOptions:
            found[reward.name] = reward_bucket(reward.name, reward.Config, installed)
    return list(found.values())


def _wanted(args: Sequence[str]) -> list[str]:
    """The rewards that flags name, else those of the variable or a file. What is wrong there is reported later."""
    from atropos_cli.cli.options import glance
    from atropos_cli.config.buckets import backend_bucket, environment_bucket, settings_bucket
    from atropos_cli.config.sources import collect

    flags = [*glance(args, "reward"), *glance(args, "rewards")]
    if flags:
        return flags
    configs = glance(args, "config")
    try:
        buckets = [settings_bucket(), environment_bucket(None), backend_bucket(None)]
        said = collect(buckets, config=Path(configs[-1]) if configs else None)
    except AtroposError:
        return []
    values = [entry.value for entry in said.entries if entry.path == ("rewards",)]
    last = values[-1] if values else ()
    texts = last.split(",") if isinstance(last, str) else last if isinstance(last, list | tuple) else ()
    return [str(text).strip() for text in texts]


def _name(text: str) -> str:
    head, equals, _ = text.rpartition("=")
    return head if equals else text


def reward_flags(buckets: Sequence[Bucket]) -> list[Flag]:
    """--NAME.OPTION and --reward.NAME.OPTION for each option of each reward."""
    from atropos_cli.cli.options import Flag
    from atropos_cli.config.buckets import REWARD

    flags = []
    for place, bucket in enumerate(bucket for bucket in buckets if bucket.table == REWARD):
        for number, option in enumerate(bucket.options):
            if not option.secret:
                names = (f"{bucket.names[0]}.{option.flag}", f"{bucket.section}.{option.flag}")
                panel = f"Options of {bucket.label}"
                flags.append(Flag(bucket.name, option, names, panel, f"{REWARD}_{place}_{number}"))
    return flags


def reward_options(resolved: Resolved) -> dict[str, dict[str, Any]]:
    """What was given for each reward, by its name."""
    from atropos_cli.config.buckets import REWARD

    return {bucket.names[0]: resolved.given[bucket.name] for bucket in resolved.buckets if bucket.table == REWARD}


class RewardCommand(Command):
    """A command that takes --reward, and with it the options of the rewards named there."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from atropos_cli.cli.environments import set_signature
        from atropos_cli.cli.options import entries_of, glance
        from atropos_cli.console.session import session_of

        # What cannot be loaded is reported when it is used, with the environment's own rewards taken into account.
        registry = session_of(ctx).registry if glance(args, "reward") else None
        buckets = [] if registry is None else reward_buckets(registry, args, _own(registry, args), lenient=True)
        flags = reward_flags(buckets)

        def options(**given: Any) -> None:
            """Only its parameters are wanted."""

        set_signature(options, [flag.as_parameter() for flag in flags])
        own = self.params
        known = {name for param in own for name in param.opts}
        more = [param for param in command_of(options, name="options").params if known.isdisjoint(param.opts)]
        try:
            self.params = [*own, *more]
            rest = super().parse_args(ctx, args)
        finally:
            self.params = own  # the next call of this command may be about other rewards
        given = {flag.parameter: ctx.params.pop(flag.parameter, None) for flag in flags}
        ctx.meta[_META] = (buckets, entries_of(flags, given))
        return rest

    def shown_name(self, name: str) -> str:
        return _SECOND_NAME.sub("", name)


def _own(registry: Registry, args: Sequence[str]) -> list[Any]:
    """The rewards of the environment that --env names."""
    from atropos_cli.cli.options import glance

    try:
        return [reward for name in glance(args, "env") for reward in registry.find("environment", name).load().rewards]
    except AtroposError:
        return []


def options_given(ctx: Any, config: Path | None) -> dict[str, dict[str, Any]]:
    """For a RewardCommand: the options of its rewards by name, from files, variables and flags. Raises ConfigError."""
    from atropos_cli.cli.environments import settle
    from atropos_cli.config.buckets import backend_bucket, environment_bucket, settings_bucket

    buckets: list[Bucket]
    entries: list[Entry]
    buckets, entries = ctx.meta.get(_META, ([], []))
    if not buckets:
        return {}
    others = [settings_bucket(), environment_bucket(None), backend_bucket(None)]
    return reward_options(settle([*others, *buckets], config, entries))
