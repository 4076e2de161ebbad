"""Sums of whole numbers: one question, one reply, one number to compare."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from atropos_cli.sdk import Config, Environment, Field, Reward, Rollout, Task, TaskStream, reward, system, user

INSTRUCTIONS = "Work out the sum. End your reply with the result."


class TemplateNameConfig(Config):
    """The options of the environment. A description is the help text of a flag."""

    terms: int = Field(default=2, ge=2, description="Numbers to add.")
    largest: int = Field(default=99, ge=1, description="Largest number.")
    seed: int = Field(default=0, description="Seed of the problems.")


def given_result(task: Task, rollout: Rollout) -> str | None:
    """The result that a reply ends with. Training runs show it beside the right one."""
    words = rollout.text.split()
    return words[-1].strip(".*$") if words else None


@reward(extract=given_result)
def correct_sum(task: Task, rollout: Rollout) -> float:
    """1.0 when the reply ends with the right result, else 0.0."""
    return float(given_result(task, rollout) == task.answer)


class TemplateName(Environment):
    """Add whole numbers."""

    name = "template-name"
    Config = TemplateNameConfig
    rewards: ClassVar[Sequence[Reward | str]] = (correct_sum,)

    def tasks(self, split: str) -> TaskStream:
        """An endless stream; the same number always gives the same task."""
        return TaskStream(lambda index: self._task(split, index))

    def validate(self, task: Task) -> bool:
        """Is the answer that the task carries the right one? `atropos env check` asks."""
        return task.answer == str(sum(task.info["numbers"]))

    def _task(self, split: str, index: int) -> Task:
        rng = random.Random(f"{self.config.seed}/{split}/{index}")
        numbers = [rng.randint(0, self.config.largest) for _ in range(self.config.terms)]
        return Task(
            id=f"{split}-{index}",
            prompt=(system(INSTRUCTIONS), user(" + ".join(map(str, numbers)))),
            answer=str(sum(numbers)),
            info={"task_name": f"sum of {len(numbers)}", "numbers": numbers},
        )
