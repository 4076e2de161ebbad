"""Rewards: functions from a rollout (or a whole group) to numbers."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from types import MethodType
from typing import Any, ClassVar, Literal, overload

from pydantic import BaseModel, JsonValue

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.ports.backend import NoOptions

RewardFunction = Callable[[Task, Rollout], float | Awaitable[float]]
GroupRewardFunction = Callable[[Task, Sequence[Rollout]], Sequence[float] | Awaitable[Sequence[float]]]
ExtractFunction = Callable[[Task, Rollout], JsonValue]


class Reward:
    """A named, weighted scoring function. Calling it calls the function.

    kind "rollout": fn(task, rollout) -> float. kind "group": fn(task, rollouts) -> one float per
    rollout. The value must be finite, else the rollout fails at stage "score". The rollout's total
    is the sum of weight * value; weight 0 reports without training. A Score is a value that carries
    numbers worth reporting. A function that has no value for a rollout raises Unscored.

    A reward with options is a subclass with a Config (a pydantic model, its fields are options) and configured().
    The options stand in the plan and belong to its digest, apart from those named in `access`: they say how
    values are got (a server's address, a time limit), not which.

    extract(task, rollout): what the reward reads from the rollout as its answer, None for nothing; for
    records and the eye, of either kind. Never called for scoring; it should be cheap, for it blocks.
    """

    Config: ClassVar[type[BaseModel]] = NoOptions
    access: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        weight: float = 1.0,
        kind: Literal["rollout", "group"] = "rollout",
        extract: ExtractFunction | None = None,
    ) -> None:
        self.fn = fn
        self.name = name or fn.__name__
        self.weight = weight
        self.kind = kind
        self.extract = extract
        self.summary = (inspect.getdoc(fn) or "").strip().split("\n", 1)[0]
        self.__name__ = self.name
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    def with_weight(self, weight: float) -> Reward:
        """The same reward with another weight."""
        return self.named(self.name, weight)

    def named(self, name: str, weight: float) -> Reward:
        """The same reward under another name, with another weight."""
        other = copy.copy(self)
        if isinstance(self.fn, MethodType) and self.fn.__self__ is self:
            other.fn = MethodType(self.fn.__func__, other)
        other.name = other.__name__ = name
        other.weight = weight
        return other

    def configured(self, config: BaseModel) -> Reward:
        """The reward with these options; subclasses with a Config override it. `config` is a valid Config."""
        return self

    def roles(self) -> dict[str, JsonDict]:
        """The roles whose models it asks, with the sampling that they have by default; each needs a model."""
        return {}

    def describe(self) -> JsonDict:
        """What to record beside the values: by what they are made. Known before the first value, no secrets."""
        return {}

    def counts(self) -> dict[str, int]:
        """What was counted since the reward was made, for the summary of a run."""
        return {}

    async def open(self) -> None:
        """Find out before a run begins what every value would meet. Raises AtroposError, which ends the run."""

    async def close(self) -> None:
        """Free what scoring opened, at the end of a run."""

    def __repr__(self) -> str:
        return f"Reward({self.name!r}, weight={self.weight:g}, kind={self.kind!r})"


@overload
def reward(fn: RewardFunction, /) -> Reward: ...
@overload
def reward(
    *, name: str | None = None, weight: float = 1.0, extract: ExtractFunction | None = None
) -> Callable[[RewardFunction], Reward]: ...
def reward(
    fn: RewardFunction | None = None,
    /,
    *,
    name: str | None = None,
    weight: float = 1.0,
    extract: ExtractFunction | None = None,
) -> Reward | Callable[[RewardFunction], Reward]:
    """Make `fn(task, rollout) -> float` a reward. Usable with or without arguments.

    extract: `fn(task, rollout)` for what it reads as the answer; records of training runs show it.
    """
    if fn is not None:
        return Reward(fn)
    return lambda function: Reward(function, name=name, weight=weight, extract=extract)


@overload
def group_reward(fn: GroupRewardFunction, /) -> Reward: ...
@overload
def group_reward(
    *, name: str | None = None, weight: float = 1.0, extract: ExtractFunction | None = None
) -> Callable[[GroupRewardFunction], Reward]: ...
def group_reward(
    fn: GroupRewardFunction | None = None,
    /,
    *,
    name: str | None = None,
    weight: float = 1.0,
    extract: ExtractFunction | None = None,
) -> Reward | Callable[[GroupRewardFunction], Reward]:
    """Make `fn(task, rollouts) -> list of floats` a reward over a whole group.

    extract: `fn(task, rollout)` for what it reads from one rollout as the answer, as for `reward`.
    """
    if fn is not None:
        return Reward(fn, kind="group")
    return lambda function: Reward(function, name=name, weight=weight, kind="group", extract=extract)
