"""A game of two turns for learning.py: a sum, and after a wrong answer the same sum again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from atropos_cli.sdk import Environment, Episode, Message, Rollout, Task, TaskStream, reward, user


def first_number(text: str) -> int | None:
    """The number a reply begins with."""
    found = re.match(r"\s*(\d+)", text)
    return int(found[1]) if found else None


@reward
def by_rollout(task: Task, rollout: Rollout) -> float:
    """1 when right at once, 0.5 at the second rollout."""
    right = [first_number(message.text) == task.answer for message in rollout.messages if message.role == "assistant"]
    return 1.0 if right[0] else 0.5 if right[-1] else 0.0


class SecondChance(Environment):
    """Endless sums of two numbers from 0 to 20."""

    name = "second-chance"
    rewards = (by_rollout,)
    splits = ("train", "test")

    def tasks(self, split: str) -> TaskStream:
        return TaskStream(lambda index: self._task(split, index))

    def _task(self, split: str, index: int) -> Task:
        rng = Random(f"{split}:{index}")
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        return Task(
            id=f"{split}-{index}", prompt=(user(f"12+12=24\n{a}+{b}="),), answer=a + b, info={"sum": f"{a}+{b}="}
        )

    def episode(self, task: Task) -> Episode:
        return _TwoTries(task)


class _TwoTries(Episode):
    def __init__(self, task: Task) -> None:
        self.task = task
        self.turn = 0

    async def reset(self) -> Sequence[Message]:
        return self.task.prompt

    async def step(self, reply: Message) -> Sequence[Message] | None:
        self.turn += 1
        if self.turn == 2 or first_number(reply.text) == self.task.answer:
            return None
        return [user(f"\n{self.task.info['sum']}")]
