"""The contracts that every environment and every reward keeps."""

from __future__ import annotations

from atropos_arithmetic.environment import ArithmeticEnvironment, exact
from atropos_authoring import EnvironmentContract, RewardContract

from atropos_cli.sdk import Task


class TestChat(EnvironmentContract):
    environment = ArithmeticEnvironment
    replies = ("Answer: 7", "Answer: 12")


class TestPlainFewShot(EnvironmentContract):
    environment = "arithmetic"
    config = {"prompt_style": "plain", "few_shot": 3, "difficulty": "mixed"}  # noqa: RUF012
    split = "test"
    replies = (" 7\n\nQuestion: What is 1 + 1?\nAnswer: 2",)


class TestExact(RewardContract):
    reward = exact
    cases = (
        (Task(id="t", answer=7), "Answer: 7", 1.0),
        (Task(id="t", answer=7), "Answer: 8", 0.0),
    )
