"""The task of TrainerContract: say digits. A random model does so now and then, a trained one nearly always."""

from __future__ import annotations

from atropos_cli.sdk import Config, Environment, Rollout, Task, TaskStream, reward, user


@reward
def digit_share(task: Task, rollout: Rollout) -> float:
    """Share of the reply's characters that are digits."""
    text = rollout.text
    return sum(character.isdecimal() for character in text) / len(text) if text else 0.0


class Digits(Environment):
    """Prompts that want digits."""

    name = "digits"
    Config = Config
    rewards = (digit_share,)

    def tasks(self, split: str) -> TaskStream:
        return TaskStream(lambda index: Task(id=str(index), prompt=(user(f"{index % 7}"),)))
