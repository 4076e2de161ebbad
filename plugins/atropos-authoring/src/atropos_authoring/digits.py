"""The task of TrainerContract: say digits. A random model does so now and then, a trained one nearly always."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from atropos_cli.sdk import Config, Environment, Field, Rollout, Task, TaskStream, reward, user

INTERRUPTING = 4
"""The task that interrupts."""


@reward
def digit_share(task: Task, rollout: Rollout) -> float:
    """Share of the reply's characters that are digits."""
    text = rollout.text
    return sum(character.isdecimal() for character in text) / len(text) if text else 0.0


class DigitsConfig(Config):
    interrupt: Path | None = Field(
        default=None, description="A file: task 4 makes it and sends this process SIGTERM, if it is not there yet."
    )


class Digits(Environment):
    """Prompts that want digits."""

    name = "digits"
    Config = DigitsConfig
    rewards = (digit_share,)

    def tasks(self, split: str) -> TaskStream:
        return TaskStream(self._task)

    def _task(self, index: int) -> Task:
        marker = self.config.interrupt
        if marker is not None and index == INTERRUPTING and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return Task(id=str(index), prompt=(user(f"{index % 7}"),), info={"task_name": self.name})
