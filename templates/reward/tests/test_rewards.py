"""The contract that every reward keeps, and the cases this one must get right."""

from __future__ import annotations

import pytest
from atropos_template.rewards import template_name

from atropos_cli.sdk import Task
from atropos_authoring import RewardContract, make_rollout

TASK = Task(id="colours", answer="red green blue white")


class TestContract(RewardContract):
    reward = template_name
    cases = (
        (TASK, "Red and green and blue and white", 1.0),
        (TASK, "red red red", 0.25),
        (TASK, "black", 0.0),
    )


def test_a_task_without_an_answer_is_an_error_not_a_zero():
    task = Task(id="empty", answer="")
    with pytest.raises(ValueError, match="no answer"):
        template_name(task, make_rollout("red", task=task))


def test_it_is_installed(atropos_registry):
    assert atropos_registry.find("reward", "template_name").load() is template_name
