"""Options of rewards on the command line: `--judge.model NAME` for the option `model` of the reward `judge`.

Which rewards a command uses is looked for before its arguments are parsed, as it is done for backends; those that
have options then bring their flags, their section [reward.NAME] and their variables ATROPOS_REWARD__NAME__*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.cli.lazy import command_of
from atropos_cli.console.command import Command
from atropos_cli.errors import AtroposError

if TYPE_CHECKING:
    from atropos_cli.config.resolve import Resolved
    from atropos_cli.config.sources import Bucket
    from atropos_cli.console.commands import Flag
    from atropos_cli.plugins.registry import Registry
    from atropos_cli.ports.environment import Environment

_SECOND_NAME = re.compile(r", --reward\.[\w.-]+")


def reward_buckets(
    registry: Registry, args: Sequence[str], environment: type[Environment] | None = None, *, lenient: bool = False
) -> list[Bucket]:
    """The option groups of the rewards that are wanted, or of the environment's when none are named.

    lenient: for help; a reward that cannot be loaded is passed over. Otherwise raises as the registry does; but where
    the environment's options decide on its rewards, only the plan knows their names.
    """
    from atropos_cli.rollout.references import varied_rewards

    if environment is None:
        return _buckets(registry, _wanted(args), (), lenient=lenient)
    lenient = lenient or varied_rewards(environment)
    return _buckets(registry, _wanted(args), environment.rewards, lenient=lenient)


def _buckets(registry: Registry, wanted: Sequence[str], own: Iterable[Any], *, lenient: bool) -> list[Bucket]:
    from atropos_cli.config.buckets import reward_bucket
    from atropos_cli.ports.backend import NoOptions
    from atropos_cli.ports.reward import Reward
    from atropos_cli.rollout.references import reward_objects

    own = list(own)
    by_name = reward_objects(own)
    installed = frozenset(item.name for item in registry.registrations("reward"))
    found: dict[str, Bucket] = {}
    for item in wanted or own:
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
    from atropos_cli.cli.habits import peek_values
    from atropos_cli.config.buckets import settings_bucket
    from atropos_cli.config.commands import said_of

    flags = [*peek_values(args, "reward"), *peek_values(args, "rewards")]
    if flags:
        return flags
    configs = peek_values(args, "config")
    return said_of(settings_bucket(), "rewards", Path(configs[-1]) if configs else None)


def _name(text: str) -> str:
    head, equals, _ = text.rpartition("=")
    return head if equals else text


def reward_flags(buckets: Sequence[Bucket]) -> list[Flag]:
    """--NAME.OPTION and --reward.NAME.OPTION for each option of each reward."""
    from atropos_cli.config.buckets import REWARD
    from atropos_cli.console.commands import Flag

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
    """A command that takes --reward, and with it the options of the rewards named there or in its section."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        from atropos_cli.console.commands import entries_of, set_signature, with_more
        from atropos_cli.console.session import session_of

        # What cannot be loaded is reported when it is used, with the environment's own rewards taken into account.
        names = _named(self.callback, args)
        registry = session_of(ctx).registry if names["rewards"] else None
        own_rewards = [] if registry is None else _own(registry, names["env"])
        buckets = [] if registry is None else _buckets(registry, names["rewards"], own_rewards, lenient=True)
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
        with_more(ctx, buckets, entries_of(flags, given))
        return rest

    def shown_name(self, name: str) -> str:
        return _SECOND_NAME.sub("", name)


def _named(command: Any, args: Sequence[str]) -> dict[str, list[str]]:
    """The rewards and the environment that flags name, else the section of the command. Mistakes are reported later."""
    from atropos_cli.cli.habits import peek_values
    from atropos_cli.config.commands import said_of
    from atropos_cli.console.commands import bucket_of

    bucket = bucket_of(command)
    configs = peek_values(args, "config")
    found = {"rewards": peek_values(args, "reward"), "env": peek_values(args, "env")}
    for name, values in found.items():
        if not values and bucket is not None:
            found[name] = said_of(bucket, name, Path(configs[-1]) if configs else None)
    return found


def _own(registry: Registry, names: Sequence[str]) -> list[Any]:
    """The rewards of the environments of these names."""
    try:
        return [reward for name in names for reward in registry.find("environment", name).load().rewards]
    except AtroposError:
        return []
