"""An environment that asks how many letters a word has, and a reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from atropos_cli.sdk import Config, Environment, Field, Rollout, Task, reward, user

WORDS = ("sun", "river", "window", "mountain")


@reward
def shortness(task: Task, rollout: Rollout) -> float:
    """1 for an empty reply, less for longer ones."""
    return 1.0 / (1 + len(rollout.text))


class LettersConfig(Config):
    repeats: int = Field(default=1, ge=1, description="How often each word is asked.")


class Letters(Environment):
    """Count letters in a word."""

    name = "letters"
    Config = LettersConfig
    rewards: ClassVar[Sequence[str]] = ("exact_match",)

    def tasks(self, split: str) -> list[Task]:
        return [
            Task(id=f"{word}-{repeat}", prompt=(user(f"How many letters has {word}?"),), answer=str(len(word)))
            for repeat in range(self.config.repeats)
            for word in WORDS
        ]
