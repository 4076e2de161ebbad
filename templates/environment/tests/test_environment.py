"""The contract that every environment keeps, and what is particular to this one."""

from __future__ import annotations

from typing import ClassVar

from atropos_template.environment import TemplateName

from atropos_authoring import EnvironmentContract


class TestContract(EnvironmentContract):
    environment = TemplateName
    config: ClassVar = {"largest": 9}
    replies = ("The result is 7.", "12")


def add(messages):
    """A model that can add."""
    return f"That makes {sum(int(number) for number in messages[-1].text.split('+'))}."


def test_a_right_reply_earns_the_reward_and_a_wrong_one_does_not(atropos_run):
    for group in atropos_run(TemplateName, replies=add, limit=3):
        assert [rollout.reward for rollout in group.rollouts] == [1.0, 1.0]
    for group in atropos_run(TemplateName, replies=["I do not know", ""], limit=3):
        assert [rollout.reward for rollout in group.rollouts] == [0.0, 0.0]


def test_it_is_installed(atropos_registry):
    assert atropos_registry.find("environment", "template-name").load() is TemplateName
