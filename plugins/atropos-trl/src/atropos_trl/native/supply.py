"""Where the groups of each step come from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from atropos_cli.sdk import ScoredGroup
from atropos_cli.sdk.training import TrainContext, TrainerError

from .crew import Crew


class Supply:
    """The groups of each step: live tasks by place, or stored groups in file order, over again when they end.

    Of several processes each rolls its part of the places, and all get all groups.

    taken: how many tasks or groups were used up to now; a resumed run goes on from there. passes: over the tasks or
    the data; None: without end.
    """

    def __init__(
        self, context: TrainContext, crew: Crew, *, live: bool, size: int, taken: int, passes: int | None
    ) -> None:
        self.taken, self._crew = taken, crew
        self._context, self._live, self._size, self._passes = context, live, size, passes
        self._stored: Iterator[ScoredGroup] | None = None

    def next(self, step: int) -> list[ScoredGroup]:
        """The groups of one batch; fewer at the end of the last pass, none after it."""
        if self._live:
            places = range(self.taken, self.taken + self._size)
            left = self._left
            found = self._roll(places[:left], step) if left != 0 else []
            self.taken += len(found)
            return [group for groups in found for group in groups]
        if self._stored is None:
            self._stored = self._open()
        groups = list(itertools.islice(self._stored, self._size))
        self.taken += len(groups)
        return groups

    @property
    def ended(self) -> bool:
        """Have all epochs been taken? False for stored groups, which end with an empty batch."""
        return self._live and self._left == 0

    @property
    def _left(self) -> int | None:
        """Tasks of all passes that are not taken; None without an end."""
        passes, tasks = self._passes, self._context.tasks
        return None if passes is None or tasks is None else max(0, tasks * passes - self.taken)

    def _roll(self, places: Sequence[int], step: int) -> list[list[ScoredGroup]]:
        """Also without places: the engine may have weights to hand over."""
        return self._crew.share(places, lambda mine: self._context.roll(mine, step=step))

    def _open(self) -> Iterator[ScoredGroup]:
        skip = self.taken
        for _ in itertools.count() if self._passes is None else range(self._passes):
            count = 0
            for group in self._context.groups():
                count += 1
                if skip:
                    skip -= 1
                else:
                    yield group
            if not count:
                raise TrainerError("the data holds no groups", hint="give --data the folder of an `atropos gen` run")
            if self._passes is None:
                skip %= count
