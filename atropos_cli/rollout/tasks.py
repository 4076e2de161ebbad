"""Reading an environment's tasks by index, at no cost for those already done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

from atropos_cli.domain.plan import parse_shard
from atropos_cli.domain.task import Task
from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.ports.environment import Environment, TaskStream
from atropos_cli.rollout.mixture import Mixture
from atropos_cli.rollout.returned import task_of, tasks_of


class Shard:
    """Which task indexes a run owns: all, or those whose hash falls on this shard.

    The hash is of the index alone, so that a shard owns the same tasks whatever --limit is, and tasks that
    stand together (often of the same difficulty) are spread over the shards.
    """

    def __init__(self, text: str | None) -> None:
        self._index, self._count = parse_shard(text) if text else (0, 1)

    def owns(self, index: int) -> bool:
        return self._count == 1 or crc32(b"%d" % index) % self._count == self._index

    def next_index(self, next_open: Callable[[int], int], start: int, end: int | None) -> int:
        """The next task to do: open, and of this shard (behind the last task, `end`, the reader ends the search)."""
        index = next_open(start)
        while not self.owns(index) and (end is None or index < end):
            index = next_open(index + 1)
        return index

    def size(self, total: int | None) -> int | None:
        """How many of `total` tasks are in the shard."""
        if total is None or self._count == 1:
            return total
        return sum(self.owns(index) for index in range(total))


def check_split(environment: Environment | type[Environment], split: str) -> None:
    """Raises UsageError for a split that the environment does not have: a generator would make tasks for any name."""
    if split not in environment.splits:
        raise UsageError(
            f"environment {environment.name!r} has no split {split!r}",
            hint=f"its splits: {', '.join(environment.splits)}",
        )


class TaskReader:
    """Hands out (index, task) in ascending order, skipping the indexes a predicate names.

    total is the number of tasks the run will have, None only for an iterable of unknown length. A Sequence
    is read by index; any other iterable is walked, since it offers no other way.
    """

    def __init__(self, environment: Environment, split: str, limit: int | None) -> None:
        check_split(environment, split)
        source = tasks_of(environment, split)
        self._environment = environment
        self._sequence: Sequence[Task] | None = source if isinstance(source, Sequence) else None
        self._iterator: Iterator[Task] = iter(source) if self._sequence is None else iter(())
        self._position = 0
        available: int | None = None
        if isinstance(source, TaskStream):
            available = source.length
            if available is None and limit is None:
                limit = environment.default_limit
        elif self._sequence is not None:
            available = len(self._sequence)
        if available == 0:
            raise ConfigError(f"environment {environment.name!r} has no tasks in split {split!r}")
        bounds = [bound for bound in (available, limit) if bound is not None]
        self.available = available
        self.total = min(bounds) if bounds else None

    def get(self, index: int) -> Task | None:
        """Task `index`, or None past the end. Without random access, indexes must be asked for in ascending order."""
        if self.total is not None and index >= self.total:
            return None
        if self._sequence is not None:
            return task_of(self._environment, self._sequence[index])
        while self._position < index:
            if next(self._iterator, None) is None:
                return None
            self._position += 1
        self._position += 1
        task = next(self._iterator, None)
        return None if task is None else task_of(self._environment, task)


def most_open_groups(environment: Environment, workers: int, group_size: int) -> int:
    """How many groups may be open: enough to keep the workers busy, not so many that they fill the memory."""
    if isinstance(environment, Mixture):
        parts = environment.parts.values()
        return max(most_open_groups(it.environment, workers, it.member.group_size or group_size) for it in parts)
    if type(environment).episode is Environment.episode:
        return 2 * workers
    return max(2, -(-2 * workers // max(1, environment.requests_at_once(group_size))) + 1)
