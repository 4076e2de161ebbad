"""Mixtures: several environments with weights in one run, as the environment `mix`.

    atropos gen mix --of arithmetic:weight=2 --of hard=arithmetic:difficulty=hard --of textworld

Each member has options, rewards, a group size and a split of its own. Its name is the `env` of its groups and the first
part of the ids of its tasks. Members take turns by their weights: after n tasks each has had its share of n, give or
take one. A member without further tasks leaves, and the others keep their weights.
"""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, ValidationError, field_validator

from atropos_cli.config.environmenttext import nested, read_environment_text, write_environment_text
from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.selection import Member
from atropos_cli.domain.task import Task
from atropos_cli.errors import AtroposError, ConfigError, PluginError, UsageError
from atropos_cli.io.promptfile import prompt_of
from atropos_cli.plugins.discovery import get_registry
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.environment import Config, Environment, Episode, GroupContext, MaybeAwaitable, TaskStream
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.references import (
    component_rewards,
    environment_config,
    environment_rewards,
    find_rewards,
    reference,
    reward_objects,
)
from atropos_cli.rollout.returned import task_of, tasks_of

NAME = "mix"
_OWN = ("weight", "group_size", "split", "rewards", "prompt")
_REWARD = "reward."
_LABEL = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_SIGNS = re.compile("[:/@]")
_HELD_OUT = ("test", "valid")


class MixConfig(Config):
    """The members of a mixture."""

    of: tuple[str, ...] = Field(
        min_length=1,
        description="Member, as [NAME=]ENV[:option=value,...]; also weight, group_size, split, rewards, prompt, and "
        "reward.NAME.option. Repeatable; in files a table of tables with the key env works too.",
    )

    @field_validator("of", mode="before")
    @classmethod
    def _tables(cls, value: Any) -> Any:
        """[env.of.NAME] and [[env.of]] of a file as texts."""
        if isinstance(value, Mapping):
            value = [{"name": name, **item} if isinstance(item, Mapping) else item for name, item in value.items()]
        return [_as_text(item) if isinstance(item, Mapping) else item for item in value] if _listed(value) else value


def _listed(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _as_text(table: Mapping[str, Any]) -> str:
    options = dict(table)
    name = options.pop("name", "")
    env = options.pop("env", name)
    if not isinstance(env, str) or not isinstance(name, str) or not env:
        raise ValueError(f"a member needs the key env, the name of an environment; got {dict(table)!r}")
    return write_environment_text(name if name != env else "", env, options)


@dataclass(frozen=True, slots=True)
class Part:
    """A member, made."""

    member: Member
    environment: Environment
    rewards: list[Reward]


class Shares:
    """Whose turn it is: after n turns each of those that took part has had its share of them, give or take one."""

    def __init__(self, weights: Sequence[float], seed: object) -> None:
        rng = random.Random(f"{seed}/mixture")
        self._weights = list(weights)
        self._credits = [rng.random() * weight for weight in weights]

    def next(self, taking_part: Sequence[int]) -> int:
        """One of those that take part in this turn."""
        for number in taking_part:
            self._credits[number] += self._weights[number]
        chosen = max(taking_part, key=self._credits.__getitem__)
        self._credits[chosen] -= sum(self._weights[number] for number in taking_part)
        return chosen


class MixedTasks(TaskStream):
    """The tasks of members whose tasks have an index, in the order of their turns."""

    def __init__(self, sources: Sequence[Sequence[Task]], weights: Sequence[float], seed: object, wrap: Any) -> None:
        lengths = [source.length if isinstance(source, TaskStream) else len(source) for source in sources]
        known = [length for length in lengths if length is not None]
        super().__init__(self._at, sum(known) if len(known) == len(lengths) else None)
        self._sources, self._lengths, self._wrap = sources, lengths, wrap
        self._shares = Shares(weights, seed)
        self._open = list(range(len(sources)))
        self._owners = array("H")
        self._places = array("Q")
        self._counts = [0] * len(sources)
        self._close_empty()

    def place(self, index: int) -> tuple[int, int]:
        """The member whose task has this index, and the task's index among the member's."""
        while len(self._owners) <= index:
            owner = self._shares.next(self._open)
            self._owners.append(owner)
            self._places.append(self._counts[owner])
            self._counts[owner] += 1
            self._close_empty()
        return self._owners[index], self._places[index]

    def _close_empty(self) -> None:
        lengths, counts = self._lengths, self._counts
        self._open = [n for n in self._open if (length := lengths[n]) is None or counts[n] < length]

    def _at(self, index: int) -> Task:
        owner, place = self.place(index)
        task: Task = self._wrap(owner, self._sources[owner][place])
        return task


class Mixture(Environment):
    """Several environments with weights, each with its own options and rewards."""

    name: ClassVar[str] = NAME
    Config: ClassVar[type[MixConfig]] = MixConfig
    splits: ClassVar[Sequence[str]] = ("train", "test", "valid")

    def __init__(self, config: MixConfig, parts: Sequence[Part] | None = None) -> None:
        super().__init__(config)
        if parts is None:  # without a plan, as `env check` makes it: with what every setting is by default
            registry = get_registry()
            parts = parts_of(find_members(GenSettings(), config, registry), registry)
        self.parts = {part.member.name: part for part in parts}
        self._seed: object = 0
        self._opened: list[Environment] = []

    @property
    def weights(self) -> list[float]:
        """Of the members, in their order."""
        return [part.member.weight for part in self.parts.values()]

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Open all members."""
        self._seed = seed
        for part in self.parts.values():
            self._opened.append(part.environment)
            try:
                await part.environment.open(workers=workers, seed=seed)
            except AtroposError:
                raise
            except Exception as error:
                text = f"environment {part.member.name!r} of the mixture cannot be opened: {describe_error(error)}"
                raise PluginError(text, hint=f"atropos env check {part.member.environment.name}") from error

    async def close(self) -> None:
        """Close those that were opened, all of them whatever happens; the first error is raised."""
        errors: list[BaseException] = []
        while self._opened:
            try:
                await self._opened.pop().close()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the others hold processes too
                errors.append(error)
        if errors:
            raise errors[0]

    def sources(self) -> list[Iterable[Task]]:
        """The tasks of each member, of its own split. Raises ConfigError for one without any."""
        found = []
        for part in self.parts.values():
            source = tasks_of(part.environment, part.member.split)
            if isinstance(source, Sequence) and not _endless(source) and not len(source):
                raise ConfigError(
                    f"environment {part.member.name!r} of the mixture has no tasks in split {part.member.split!r}"
                )
            found.append(source)
        return found

    def tasks(self, split: str) -> Iterable[Task]:
        """By index, where every member has one. `split` is in the members' plans already."""
        sources = self.sources()
        indexed = [source for source in sources if isinstance(source, Sequence)]
        if len(indexed) == len(sources):
            return MixedTasks(indexed, self.weights, self._seed, self.task_of)
        return self._walk([iter(source) for source in sources])

    def _walk(self, sources: Sequence[Iterator[Task]]) -> Iterator[Task]:
        shares, taking_part = Shares(self.weights, self._seed), list(range(len(sources)))
        while taking_part:
            owner = shares.next(taking_part)
            task = next(sources[owner], None)
            if task is None:
                taking_part.remove(owner)
            else:
                yield self.task_of(owner, task)

    def task_of(self, owner: int, task: Any) -> Task:
        """A member's task as one of the mixture."""
        name = list(self.parts)[owner]
        own = task_of(self.parts[name].environment, task)
        return own.model_copy(update={"id": f"{name}/{own.id}"})

    def own(self, task: Task) -> tuple[Environment, Task]:
        """The member that a task of the mixture is of, and the task as the member knows it."""
        name, _, own = task.id.partition("/")
        return self.parts[name].environment, task.model_copy(update={"id": own})

    def episode(self, task: Task) -> Episode:
        """The member's."""
        environment, own = self.own(task)
        return environment.episode(own)

    def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """The member's. The engine asks the member itself, with the member's rewards and group size."""
        environment, own = self.own(task)
        return environment.roll_group(own, context)

    def requests_at_once(self, group_size: int) -> int:
        """Of the member with the fewest."""
        return min(
            part.environment.requests_at_once(part.member.group_size or group_size) for part in self.parts.values()
        )

    def prefetch(self) -> Iterable[str]:
        """What each member needs."""
        for part in self.parts.values():
            yield from part.environment.prefetch()

    def validate(self, task: Task) -> MaybeAwaitable[bool | None]:
        """The member's."""
        environment, own = self.own(task)
        return environment.validate(own)


def _endless(source: Sequence[Task]) -> bool:
    return isinstance(source, TaskStream) and source.length is None


def member_name(task_id: str) -> str:
    """The member that the id of a mixture's task names."""
    return task_id.partition("/")[0]


def relabelled(groups: Sequence[ScoredGroup], task: Task) -> tuple[ScoredGroup, ...]:
    """A member's groups under the id that the task has in the mixture."""
    return tuple(
        group.model_copy(
            update={
                "task": group.task.model_copy(update={"id": task.id}),
                "rollouts": tuple(one.model_copy(update={"task_id": task.id}) for one in group.rollouts),
            }
        )
        for group in groups
    )


def mixture_of(plan: Plan, registry: Registry) -> Mixture:
    """The mixture of a plan, its members' options checked; not opened yet."""
    config = MixConfig(of=tuple(member.name for member in plan.mixture))
    return Mixture(config, parts_of(plan.mixture, registry))


def parts_of(members: Sequence[Member], registry: Registry) -> list[Part]:
    """The members, made."""
    parts = []
    for member in members:
        environment = made_environment(member, registry)
        own = reward_objects(environment_rewards(member.environment, registry))
        parts.append(Part(member, environment, component_rewards(member.rewards, own, registry)))
    return parts


def made_environment(source: Plan | Member, registry: Registry) -> Environment:
    """An environment as a plan or a member of its mixture has it. Not opened yet."""
    ref = source.environment
    cls = registry.find("environment", ref.name, dist=ref.dist).load()
    environment: Environment = cls(environment_config(cls, ref.name, ref.config))
    if source.prompt:
        environment.prompt = prompt_of(cls, source.prompt)
    return environment


def find_members(settings: GenSettings, config: MixConfig, registry: Registry) -> tuple[Member, ...]:
    """The members of a mixture, resolved and checked. Raises AtroposError naming the member."""
    members: dict[str, Member] = {}
    for text in config.of:
        try:
            member = _member(text, settings, registry)
        except UsageError:
            raise
        except AtroposError as error:
            error.args = (f"--of {text!r}: {error.message}",)
            error.message = error.args[0]
            raise
        if member.name.casefold() in map(str.casefold, members):
            raise UsageError(
                f"two members of the mixture are called {member.name!r}",
                hint="write a name in front of one: --of NAME=ENV",
            )
        members[member.name] = member
    return tuple(members.values())


def default_label(name: str) -> str:
    """The name of a member without one: of verifiers:sums, sums; of openenv:http://HOST:PORT, openenv."""
    last = _SIGNS.split(name)[-1]
    return last if _LABEL.fullmatch(last) and not last.isdigit() else name.partition(":")[0]


def _member(text: str, settings: GenSettings, registry: Registry) -> Member:
    said = read_environment_text(text, "--of", registry.families())
    registration = registry.find("environment", said.name)
    cls = registration.load()
    if isinstance(cls, type) and issubclass(cls, Mixture):
        raise UsageError(f"--of {text!r}: a mixture has no mixtures in it", hint="name its members one by one")
    name = said.label or default_label(cls.name if registration.file is not None else registration.name)
    if not _LABEL.fullmatch(name):
        raise UsageError(f"--of {text!r}: {name!r} cannot name a member", hint="letters, digits, and . _ - behind them")
    own = {key: value for key, value in said.options.items() if key in _OWN}
    rewards = {key.removeprefix(_REWARD): value for key, value in said.options.items() if key.startswith(_REWARD)}
    rest = {key for key in said.options if key not in own and not key.startswith(_REWARD)}
    options = nested({key.removeprefix("env."): said.options[key] for key in rest}, f"--of {text!r}")
    wanted = own.get("rewards", settings.rewards)
    wanted = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    given = {**settings.reward_options, **nested(rewards, f"--of {text!r}")}
    if isinstance(own.get("weight"), bool):
        raise UsageError(f"--of {text!r}: a weight is a number", hint=f"--of {said.name}:weight=2")
    ref = reference(registration, cls.Config, options)
    try:
        return Member(
            name=name,
            weight=own.get("weight", 1.0),
            environment=ref,
            rewards=find_rewards(wanted, environment_rewards(ref, registry), registry, given),
            group_size=own.get("group_size"),
            split=own.get("split") or _split(cls, settings.split),
            prompt=prompt_of(cls, None, own.get("prompt") or settings.prompt).data,
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{first['msg']}, got {first['input']!r}"
        hint = "leave a member without weight out" if where == "weight" else None
        raise UsageError(f"--of {text!r}: {where}: {why}", hint=hint) from error


def _split(cls: Any, wanted: str) -> str:
    """The member's split for the run's: the same, or another one of held-out tasks."""
    if wanted in cls.splits or wanted not in _HELD_OUT:
        return wanted
    return next((split for split in _HELD_OUT if split in cls.splits), wanted)
