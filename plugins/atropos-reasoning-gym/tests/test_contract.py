"""The contracts that every environment and every reward keeps."""

from __future__ import annotations

from atropos_authoring import EnvironmentContract, RewardContract
from atropos_reasoning_gym.environment import ReasoningGymEnvironment
from atropos_reasoning_gym.scoring import answer_tags, reasoning_gym

from atropos_cli.sdk import Task

SUM = Task(
    id="t",
    answer="4",
    info={
        "family": "chain_sum",
        "seed": 0,
        "config": {},
        "entry": {"question": "2 + 2", "answer": "4", "metadata": {}},
    },
)


class TestReasoningGym(EnvironmentContract):
    environment = ReasoningGymEnvironment
    config = {"families": ("chain_sum", "countdown", "spell_backward")}  # noqa: RUF012
    replies = ("<answer>12</answer>", "I do not know.")


class TestByName(EnvironmentContract):
    environment = "reasoning-gym"
    config = {  # noqa: RUF012
        "families": ("puzzle24=3", "n_queens"),
        "options": {"n_queens": {"n": 5, "min_remove": 1, "max_remove": 3}},
        "max_level": 1,
        "thinking": True,
    }
    split = "test"
    replies = ("<think>hm</think><answer>(1 + 2) * 8</answer>",)


class TestScore(RewardContract):
    reward = reasoning_gym
    cases = (
        (SUM, "<answer>4</answer>", 1.0),
        (SUM, "<answer> 4\n</answer>", 1.0),
        (SUM, "<answer>5</answer>", 0.0),
        (SUM, "4", 0.0),
    )


class TestTags(RewardContract):
    reward = answer_tags
    cases = (
        (Task(id="t"), "so <answer>4</answer>", 1.0),
        (Task(id="t"), "<answer>4</answer><answer>5</answer>", 0.0),
        (Task(id="t"), "<think><answer>4</answer></think>", 0.0),
    )
