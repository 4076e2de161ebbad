"""Evaluations during training: the suites' tasks, their results, and the best step.

Each evaluation is kept as evals/SUITE-step-N.json, in the form that `atropos eval` writes. The best step is
the one with the highest accuracy on the first suite, of equals that with the highest mean reward, then the earliest.
Where nothing says what a success is, it is the one with the highest mean reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from atropos_cli.sdk import JsonDict, Reward, ScoredGroup, Task
from atropos_cli.sdk.analysis import Evaluation, Evidence, LostTask, evaluate
from atropos_cli.sdk.data import atomic_write, read_object
from atropos_cli.sdk.engine import Player, TaskReader, make_group_id
from atropos_cli.sdk.records import EVALUATIONS, PER_STEP, sample_row, spaced, suite_file
from atropos_cli.sdk.runs import Plan


class SuiteResults:
    """What the suites of one training run found, read from the run folder again after a resume."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder / EVALUATIONS
        self._names = {suite_file(name): name for name in names}
        self._tasks: dict[str, dict[int, Task]] = {}
        self._rewards: dict[str, Callable[[Task], Sequence[Reward]]] = {}
        self._first = names[0] if names else None
        self.best_step: int | None = None
        self.best_value = (-math.inf, -math.inf)
        self.history: dict[int, dict[str, float]] = {}

    def tasks_of(self, name: str, player: Player) -> dict[int, Task]:
        """The suite's tasks by place; read once."""
        if name not in self._tasks:
            reader = TaskReader(player.environment, player.plan.split, player.plan.limit)
            tasks: dict[int, Task] = {}
            index = 0
            while (task := reader.get(index)) is not None:
                tasks[index] = task
                index += 1
            self._tasks[name] = tasks
            self._rewards[name] = player.rewards_of
        return self._tasks[name]

    def count(
        self,
        name: str,
        step: int,
        plan: Plan,
        tasks: Mapping[int, Task],
        found: Mapping[int, list[ScoredGroup]],
        failures: Mapping[int, Sequence[str]],
    ) -> tuple[dict[str, float], list[JsonDict]]:
        """Metrics of one evaluation and some of its completions; keeps the whole of it in a file.

        failures: "stage:type" of the failed rollouts by their task's place.
        """
        groups = [group for place in tasks for group in found[place]]
        lost = [_lost(place, task, failures.get(place, ())) for place, task in tasks.items() if not found[place]]
        result = evaluate(plan, Evidence(groups, lost), ks=sorted({1, plan.group_size}))
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{suite_file(name)}-step-{step}.json"
        atomic_write(path, result.model_dump_json(indent=2).encode() + b"\n")
        first = [
            (group.task, rollout)
            for group in groups
            for rollout in group.rollouts[:1]
            if group.last and rollout.failure is None
        ]
        of = self._rewards[name]
        shown = [sample_row(task, rollout, of(task)) for task, rollout in spaced(first, PER_STEP)]
        return _metrics(result), shown

    def numbered(
        self, name: str, step: int, found: Mapping[int, Sequence[ScoredGroup]], digest: str
    ) -> dict[int, list[ScoredGroup]]:
        """The groups of an evaluation by the places that they have among those of all evaluations of the run."""
        before = list(self._tasks)[: list(self._tasks).index(name)]
        first = step * sum(map(len, self._tasks.values())) + sum(len(self._tasks[other]) for other in before)
        return {
            first + place: [group.replace(group_id=make_group_id(digest, first + place)) for group in groups]
            for place, groups in found.items()
        }

    def settle(self, step: int, values: Mapping[str, float]) -> None:
        """Remember the values of a step's evaluations and see whether it is the best so far."""
        self.history[step] = dict(values)
        accuracy, reward = (values.get(f"eval/{self._first}/{name}") for name in ("accuracy", "reward"))
        if accuracy is None and reward is None:
            return
        value = (-math.inf if accuracy is None else accuracy, -math.inf if reward is None else reward)
        if self.best_step is None or value > self.best_value:
            self.best_step, self.best_value = step, value

    def recover(self, upto: int) -> None:
        """Read the evaluations of an earlier attempt, up to a step; later ones are made again."""
        steps: dict[int, dict[str, float]] = {}
        for path in sorted(self._folder.glob("*-step-*.json")):
            name, _, number = path.stem.rpartition("-step-")
            if not number.isdigit() or int(number) > upto:
                continue
            result = Evaluation.model_validate(read_object(path))
            name = self._names.get(name, name)
            values = {f"eval/{name}/{key}": value for key, value in _metrics(result).items()}
            steps.setdefault(int(number), {}).update(values)
        for step in sorted(steps):
            self.settle(step, steps[step])


def videos_of(suite: str, found: Mapping[int, Sequence[ScoredGroup]], folder: Path) -> list[JsonDict]:
    """The videos of an evaluation's rollouts, as trackers are given them."""
    rollouts = [rollout for groups in found.values() for group in groups for rollout in group.rollouts]
    return [
        {
            "path": str(folder / str(rollout.info["video"])),
            "suite": suite,
            "task": rollout.task_id,
            "return": rollout.reward,
            "steps": rollout.info.get("steps"),
            "success": rollout.info.get("success"),
        }
        for rollout in rollouts
        if rollout.info.get("video")
    ]


def _lost(place: int, task: Task, kinds: Sequence[str]) -> LostTask:
    parts = [dict(zip(("stage", "type"), kind.split(":", 1), strict=True)) for kind in kinds]
    return LostTask(place, "", task.id, tuple(parts))


def _metrics(result: Evaluation) -> dict[str, float]:
    values = result.headline()
    if result.rollouts:
        values["completion_tokens"] = result.completion_tokens / result.rollouts
        values["truncated"] = sum(task.truncated for task in result.per_task) / result.rollouts
    return values
