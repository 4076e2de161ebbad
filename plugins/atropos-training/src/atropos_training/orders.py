"""The order of a training's tasks where it is more than that of one environment: mixtures, and curricula."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from atropos_cli.sdk import ConfigError, Environment, ScoredGroup, Task
from atropos_cli.sdk.engine import CurriculumReader, Mixture, Shares
from atropos_cli.sdk.runs import Plan
from atropos_training.order import TaskOrder, task_digests
from atropos_training.ranks import world_size


class Order(Protocol):
    """Task by place. length: tasks of an epoch, None where there is no such thing. skipped: held-out ones left out."""

    @property
    def length(self) -> int | None: ...
    @property
    def skipped(self) -> int: ...
    def task(self, place: int) -> Task: ...
    def note(self, place: int, task: Task, groups: Sequence[ScoredGroup]) -> None: ...
    def close(self) -> None: ...


def order_of(environment: Environment, plan: Plan, folder: Path, held_out: frozenset[bytes]) -> Order:
    """The order that a plan asks for. folder: the run's, where a curriculum is kept."""
    if plan.selection.curriculum is not None:
        return CurriculumOrder(environment, plan, folder, held_out)
    if isinstance(environment, Mixture):
        return MixedOrder(environment, plan, held_out)
    return TaskOrder(environment, plan.split, plan.limit, seed=plan.seed, held_out=held_out)


class MixedOrder:
    """The members of a mixture by turns, each in its own order: one that was gone through starts again."""

    def __init__(self, mixture: Mixture, plan: Plan, held_out: frozenset[bytes]) -> None:
        whole = sum(mixture.weights)
        self._mixture = mixture
        self._orders = [
            TaskOrder(
                part.environment,
                part.member.split,
                None if plan.limit is None else max(1, round(plan.limit * part.member.weight / whole)),
                seed=plan.seed,
                held_out=held_out,
            )
            for part in mixture.parts.values()
        ]
        self._shares = Shares(mixture.weights, plan.seed)
        self._turns: list[tuple[int, int]] = []
        self._counts = [0] * len(self._orders)

    @property
    def length(self) -> int | None:
        """Of all members together."""
        lengths = [order.length for order in self._orders]
        known = [length for length in lengths if length is not None]
        return sum(known) if len(known) == len(lengths) else None

    @property
    def skipped(self) -> int:
        """Held-out tasks of all members."""
        return sum(order.skipped for order in self._orders)

    def task(self, place: int) -> Task:
        """The task at a place; places run from 0 without end."""
        while len(self._turns) <= place:
            owner = self._shares.next(range(len(self._orders)))
            self._turns.append((owner, self._counts[owner]))
            self._counts[owner] += 1
        owner, number = self._turns[place]
        return self._mixture.task_of(owner, self._orders[owner].task(number))

    def note(self, place: int, task: Task, groups: Sequence[ScoredGroup]) -> None:
        """Results change nothing."""

    def close(self) -> None:
        """Nothing is open."""


class CurriculumOrder:
    """Tasks as a curriculum chooses them by the results of earlier steps."""

    length = None

    def __init__(self, environment: Environment, plan: Plan, folder: Path, held_out: frozenset[bytes]) -> None:
        if world_size() > 1:
            raise ConfigError(
                "a curriculum goes by the results of the whole training, and each process knows only its own",
                hint="leave out --curriculum, or train in one process",
            )
        self._reader = CurriculumReader(
            environment,
            plan,
            folder,
            cycle=str(plan.seed),
            accept=lambda task: not held_out or held_out.isdisjoint(task_digests(task)),
        )

    @property
    def skipped(self) -> int:
        """Held-out tasks that were left out so far."""
        return sum(pool.skipped for pool in self._reader.pools)

    def task(self, place: int) -> Task:
        """The task at a place; the same again once it is chosen."""
        task = self._reader.get(place)
        if task is None:
            raise ConfigError("there are no tasks to train on: all of them are tasks of the evaluation, or none exist")
        return task

    def note(self, place: int, task: Task, groups: Sequence[ScoredGroup]) -> None:
        """The groups of a task, before they are written."""
        self._reader.outcome(place, task, groups)

    def close(self) -> None:
        """Close the file."""
        self._reader.curriculum.close()
