"""The part of the session for trainers whose own engine samples: they are given tasks, and give groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from atropos_cli.sdk import ScoredGroup, Task
from atropos_cli.sdk.engine import Player
from atropos_cli.sdk.training import TrainerError

if TYPE_CHECKING:
    from atropos_training.orders import Order
    from atropos_training.ranks import RankRecording
    from atropos_training.recording import Recording
    from atropos_training.suites import SuiteResults


class PlayedElsewhere(ABC):
    """See ports.trainer.TrainContext."""

    results: SuiteResults
    recording: Recording | RankRecording
    _order: Order | None
    _suites: dict[str, Player]
    _evaluated: dict[int, dict[str, float]]

    def task(self, place: int) -> Task:
        """See TrainContext."""
        if self._order is None:
            raise TrainerError("task() needs an environment in the plan", hint="--env NAME")
        return self._order.task(place)

    def suite_tasks(self, suite: str) -> Mapping[int, Task]:
        """See TrainContext."""
        return self.results.tasks_of(suite, self._suites[suite])

    def played(self, step: int, groups: Mapping[int, list[ScoredGroup]]) -> None:
        """See TrainContext."""
        self._locate(step - 1)
        for place, found in groups.items():
            self._write(place, found)
        self._show(step - 1, [group for found in groups.values() for group in found])

    def evaluated(self, step: int, found: Mapping[str, Mapping[int, list[ScoredGroup]]]) -> dict[str, float]:
        """See TrainContext."""
        if step in self._evaluated:
            return self._evaluated[step]
        self._locate(step, evaluated=False)
        values: dict[str, float] = {}
        for name, player in self._suites.items():
            tasks = self.suite_tasks(name)
            groups = {place: list(found.get(name, {}).get(place, ())) for place in tasks}
            evaluation, rows = self.results.count(name, step, player.plan, tasks, groups, {})
            values |= {f"eval/{name}/{key}": value for key, value in evaluation.items()}
            self.recording.samples(step, rows, suite=name)
        self.results.settle(step, values)
        self.recording.evaluation(step, values)
        self._evaluated[step] = values
        return values

    @abstractmethod
    def _locate(self, step: int, *, evaluated: bool = True) -> None:
        """The run continues at this step, where it is resumed."""

    @abstractmethod
    def _write(self, place: int, groups: Sequence[ScoredGroup]) -> None:
        """Write the groups of a place once."""

    @abstractmethod
    def _show(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Record some completions of them."""
