"""Which tasks made each step of an asynchronous training: they are taken in the order in which they come out.

One line a step in steporder.jsonl, written after the groups and before the optimiser sees them. A resumed training
learns from the same groups in the same steps, as far as the file goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from atropos_cli.sdk import DataError, JsonDict
from atropos_cli.sdk.records import StepLog, read_steps
from atropos_training.keptgroups import KeptGroups

FILE = "steporder.jsonl"


@dataclass(frozen=True)
class StepTasks:
    """places: tasks whose groups the step learns from. failed: those without a rollout. dropped: too old ones.

    most: how many versions old a token could be.
    """

    places: tuple[int, ...]
    failed: tuple[int, ...]
    dropped: tuple[int, ...]
    most: int

    @property
    def all(self) -> set[int]:
        """Tasks that are not played again."""
        return {*self.places, *self.failed, *self.dropped}


class StepOrder:
    """The file and its content. kept: the run's stored groups."""

    def __init__(self, folder: Path, kept: KeptGroups) -> None:
        self._path = folder / FILE
        self._kept = kept
        self._log = StepLog(self._path)
        self._steps: dict[int, StepTasks] = {}
        for record in read_steps(self._path):
            step = record["step"]
            assert isinstance(step, int)
            self._steps[step] = _read(record, self._path)

    def begin(self, step: int) -> int:
        """The training continues at this step; returns the first step that is to be made of new tasks.

        Later steps whose groups were lost with the disk's last seconds are made again of new tasks. Raises DataError
        for gaps.
        """
        if missing := [one for one in range(step) if one not in self._steps]:
            raise DataError(
                f"{self._path} does not say what step {missing[0] + 1} was made of",
                hint="start again with --overwrite",
            )
        known = step
        while (tasks := self._steps.get(known)) is not None and all(place in self._kept for place in tasks.places):
            known += 1
        self._log.cut((known, 0))
        self._steps = {number: tasks for number, tasks in self._steps.items() if number < known}
        return known

    def of(self, step: int) -> StepTasks | None:
        """What a step was made of before; None for a new one."""
        return self._steps.get(step)

    def places(self, end: int | None) -> Iterator[int]:
        """Those that no step was made of, in order. end: there are none from there on."""
        gone: set[int] = set()
        for tasks in self._steps.values():
            gone |= tasks.all
        return (place for place in (count() if end is None else range(end)) if place not in gone)

    def write(self, step: int, tasks: StepTasks) -> None:
        """Note what a new step is made of. Raises DataError when the disk is full."""
        self._steps[step] = tasks
        self._log.write({"step": step, **vars(tasks)}, (step, 0))

    def close(self) -> None:
        self._log.close()


def _read(record: JsonDict, path: Path) -> StepTasks:
    try:
        lists = [tuple(int(place) for place in record[name]) for name in ("places", "failed", "dropped")]  # type: ignore[union-attr, arg-type]
        return StepTasks(lists[0], lists[1], lists[2], int(record["most"]))  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}", hint="start again with --overwrite") from error
