"""Reading an environment's tasks by index, at no cost for those already done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atropos_cli.domain.task import Task
from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.ports.environment import Environment, TaskStream


class TaskReader:
    """Hands out (index, task) in ascending order, skipping the indexes a predicate names.

    total is the number of tasks the run will have, None only for an iterable of unknown length. A Sequence
    is read by index; any other iterable is walked, since it offers no other way.
    """

    def __init__(self, environment: Environment, split: str, limit: int | None) -> None:
        if split not in environment.splits:
            raise UsageError(
                f"environment {environment.name!r} has no split {split!r}",
                hint=f"its splits: {', '.join(environment.splits)}",
            )
        source = environment.tasks(split)
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
        self.total = min(bounds) if bounds else None

    def get(self, index: int) -> Task | None:
        """Task `index`, or None past the end. Without random access, indexes must be asked for in ascending order."""
        if self.total is not None and index >= self.total:
            return None
        if self._sequence is not None:
            return self._sequence[index]
        while self._position < index:
            if next(self._iterator, None) is None:
                return None
            self._position += 1
        self._position += 1
        return next(self._iterator, None)
