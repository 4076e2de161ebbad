"""Evaluations during training: the suites' tasks, their results, and the best step.

Each evaluation is kept as evals/SUITE-step-N.json, in the form that `atropos eval` writes. The best step is
the one with the highest accuracy on the first suite, the earliest of equals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.evaluation.evaluation import Evaluation, evaluate, own_verdict, succeeded, success_threshold
from atropos_cli.evaluation.evidence import Evidence
from atropos_cli.io.append import atomic_write
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.lost import LostTask
from atropos_cli.plugins.files import names_a_file
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.tasks import TaskReader
from atropos_cli.training.live import Player
from atropos_cli.training.records.samples import PER_STEP, plain_cell, spaced
from atropos_cli.training.records.summary import EVALUATIONS

MOST_EXTRACTED = 2000
"""Characters of an extracted answer in a row of the records; it may be a whole program."""


class SuiteResults:
    """What the suites of one training run found, read from the run folder again after a resume."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder = folder / EVALUATIONS
        self._names = {file_name(name): name for name in names}
        self._tasks: dict[str, dict[int, Task]] = {}
        self._rewards: dict[str, Sequence[Reward]] = {}
        self._first = names[0] if names else None
        self.best_step: int | None = None
        self.best_value = float("-inf")
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
            self._rewards[name] = player.rewards
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
        path = self._folder / f"{file_name(name)}-step-{step}.json"
        atomic_write(path, result.model_dump_json(indent=2).encode() + b"\n")
        first = [
            (group.task, rollout)
            for group in groups
            for rollout in group.rollouts[:1]
            if group.last and rollout.failure is None
        ]
        rewards = self._rewards.get(name, ())
        shown = [sample_row(task, rollout, rewards) for task, rollout in spaced(first, PER_STEP)]
        return _metrics(result), shown

    def settle(self, step: int, values: Mapping[str, float]) -> None:
        """Remember the values of a step's evaluations and see whether it is the best so far."""
        self.history[step] = dict(values)
        value = values.get(f"eval/{self._first}/accuracy")
        if value is not None and value > self.best_value:
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


def file_name(suite: str) -> str:
    """The suite's name as part of a file's."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", suite)


def _lost(place: int, task: Task, kinds: Sequence[str]) -> LostTask:
    parts = [dict(zip(("stage", "type"), kind.split(":", 1), strict=True)) for kind in kinds]
    return LostTask(place, "", task.id, tuple(parts))


def _metrics(result: Evaluation) -> dict[str, float]:
    values = result.headline()
    if result.rollouts:
        values["completion_tokens"] = result.completion_tokens / result.rollouts
        values["truncated"] = sum(task.truncated for task in result.per_task) / result.rollouts
    return values


def plain_name(environment: str) -> str:
    """The name of an environment in metrics: for one in a file its class, since paths do not fit there."""
    return environment.rpartition(":")[2].lower() if names_a_file(environment) else environment


def sample_row(task: Task, rollout: Rollout, rewards: Sequence[Reward] = ()) -> JsonDict:
    """What the records keep of a completion: as read by the episode or a reward, and judged as by `atropos eval`.

    `expected` is the task's answer. Without rewards `correct` is the episode's own verdict or None.
    """
    prompt = [message for message in rollout.messages if message.role != "assistant"]
    return {
        "task": task.id,
        "prompt": "\n\n".join(message.text for message in prompt[:4]),
        "completion": rollout.text,
        "extracted": _extracted(task, rollout, rewards),
        "expected": task.answer,
        "reward": rollout.reward,
        "correct": _correct(rollout, rewards),
    }


def _extracted(task: Task, rollout: Rollout, rewards: Sequence[Reward]) -> JsonValue:
    """What the episode stored as the answer, else what the first reward that extracts one reads."""
    try:
        if "extracted" in rollout.info:
            return plain_cell(rollout.info["extracted"], MOST_EXTRACTED)
        extract = next((reward.extract for reward in rewards if reward.extract is not None), None)
        return None if extract is None else plain_cell(extract(task, rollout), MOST_EXTRACTED)
    except Exception:  # noqa: BLE001 - a plugin's error in what is only shown must not end a training run
        return None


def _correct(rollout: Rollout, rewards: Sequence[Reward]) -> bool | None:
    if own_verdict(rollout) is None and (not rewards or rollout.reward is None):
        return None
    return succeeded(rollout, success_threshold(rewards))
