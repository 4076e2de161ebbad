"""The environments that have registered: their weights, signs of life, and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from atropos_serve.packing import minimums
from atropos_serve.wire import Refused, RegisterEnv

_LEAST_WEIGHT = 0.01


@dataclass(slots=True)
class Env:
    """One environment. exempt: batches have waited too long for its minimum; its next group ends that."""

    id: int
    desired_name: str
    name: str
    weight: float
    group_size: int
    max_token_length: int
    minimum: float | None
    last_seen: float
    connected: bool = True
    exempt: bool = False
    groups: int = 0
    sequences: int = 0
    refused: int = 0
    served: int = 0
    lag: int = 0
    recent: list[float] = field(default_factory=list)

    def stored(self) -> dict[str, Any]:
        names = "desired_name name weight group_size max_token_length minimum connected"
        return {name: getattr(self, name) for name in names.split()}


class Environments:
    """All environments by id. Ids are never used twice, so that groups of one are not taken for another's."""

    def __init__(self, timeout: float, clock: Callable[[], float]) -> None:
        self._timeout = timeout
        self._clock = clock
        self._all: dict[int, Env] = {}

    def __iter__(self) -> Iterator[Env]:
        return iter(self._all.values())

    def get(self, env: int | None) -> Env | None:
        return None if env is None else self._all.get(env)

    def restore(self, env: int, value: dict[str, Any]) -> None:
        self._all[env] = Env(id=env, last_seen=self._clock(), **value)

    def register(self, asked: RegisterEnv, batch_size: int) -> Env:
        """A new environment. Raises Refused when its groups cannot make up a batch."""
        if batch_size % asked.group_size:
            raise Refused.because(
                f"group_size {asked.group_size} does not divide the trainer's batch_size {batch_size}: "
                "its groups would never make up a batch",
                "group_size",
            )
        wanted = asked.desired_name or "env"
        count = sum(env.desired_name == wanted for env in self)
        weight = 1.0 if asked.weight is None else asked.weight
        env = Env(
            id=max(self._all, default=-1) + 1,
            desired_name=wanted,
            name=f"{wanted}_{count}",
            weight=weight,
            group_size=asked.group_size,
            max_token_length=asked.max_token_length,
            minimum=asked.min_batch_allocation,
            last_seen=self._clock(),
        )
        self._all[env.id] = env
        return env

    def check_batch_size(self, batch_size: int) -> None:
        """Raises Refused if a living environment's groups would not make up such a batch."""
        for env in self:
            if self.lives(env) and batch_size % env.group_size:
                raise Refused.because(
                    f"batch_size {batch_size} is not a multiple of group_size {env.group_size} of {env.name}",
                    "batch_size",
                )

    def touch(self, env: int | None) -> Env | None:
        """An environment gave a sign of life."""
        if (found := self.get(env)) is not None:
            found.last_seen = self._clock()
        return found

    def forget(self) -> None:
        """After a reset nothing is known of them until they are heard of again."""
        for env in self:
            env.last_seen = self._clock() - self._timeout

    def disconnect(self, env: int) -> Env | None:
        if (found := self.get(env)) is not None:
            found.connected = False
        return found

    def lives(self, env: Env) -> bool:
        return env.connected and self._clock() - env.last_seen < self._timeout

    def silent_for(self, env: Env) -> float:
        return self._clock() - env.last_seen

    def weight(self, env: Env) -> float:
        """Its part of the inference servers, by context length and weight; 1 for one without a weight."""
        if env.weight < 0:
            return 1.0
        total = sum(
            one.max_token_length * one.weight for one in self if one.weight > 0 and (one is env or self.lives(one))
        )
        return max(_LEAST_WEIGHT, env.max_token_length * env.weight / total if total else 0.0)

    def unallocated(self) -> float:
        """The part of a batch that no minimum claims."""
        return 1.0 - min(1.0, sum(env.minimum or 0.0 for env in self if self.lives(env)))

    def minimums(self, batch_size: int) -> dict[int, int]:
        """Sequences that a batch must hold at least, by environment."""
        shares = {env.id: env.minimum for env in self if env.minimum}
        if not shares:
            return {}
        sizes = {env.id: env.group_size for env in self}
        return minimums(batch_size, shares, sizes, lambda env: self.lives(self._all[env]) and not self._all[env].exempt)
