"""An environment in a file, as a user without a package would have it."""

from __future__ import annotations

from pathlib import Path

import pytest

SUMS = '''
from typing import Literal

from atropos_cli.sdk import Config, Environment, Field, SecretStr, Task, reward, user


class Inner(Config):
    depth: int = Field(default=3, ge=1, le=9, description="How deep.")
    fast: bool = Field(default=False, description="Be fast.")


class SumsConfig(Config):
    count: int = Field(default=5, ge=1, description="Number of sums.")
    level: Literal["easy", "hard"] = Field(default="easy", description="Difficulty.")
    sizes: tuple[int, ...] = Field(default=(1, 2), description="Sizes.")
    workers: int = Field(default=1, description="Clashes with a run option.")
    inner: Inner = Field(default_factory=Inner)
    extra: dict[str, int] = Field(default_factory=dict, description="Extra things.")
    note: str | None = Field(default=None, description="A note.")
    wrong: bool = Field(default=False, description="Make the gold answers wrong.")
    token: SecretStr | None = Field(default=None, description="A secret.")


@reward
def exact(task, rollout):
    """1.0 for the sum."""
    return float(rollout.text.strip() == task.answer)


class Sums(Environment):
    """Adds numbers.

    A longer text.
    """

    name = "sums"
    Config = SumsConfig
    rewards = (exact,)
    splits = ("train", "test")

    def tasks(self, split):
        gold = 1 if self.config.wrong else 0
        return [
            Task(id=f"{split}-{i}", prompt=(user(f"{i}+{i}"),), answer=str(2 * i + gold), info={"i": i})
            for i in range(self.config.count)
        ]

    def validate(self, task):
        return task.answer == str(2 * task.info["i"])
'''


@pytest.fixture
def sums(isolation: Path) -> str:
    """The name of an environment whose file lies in the working directory."""
    (isolation / "sums.py").write_text(SUMS)
    return "./sums.py:Sums"
