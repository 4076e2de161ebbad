"""The rewards: what the environment found at the end of the conversation, in `rollout.info`.

A part for which the task has nothing to check is 1, as in tau2; a conversation that was cut off has 0 in each.
"""

from __future__ import annotations

from typing import Any

from atropos_cli.sdk import DataError, Rollout, Task, reward


def _info(rollout: Rollout) -> dict[str, Any]:
    if "termination" not in rollout.info:
        raise DataError(f"rollout {rollout.id} is not one of the environment tau")
    return dict(rollout.info)


def _share(rollout: Rollout, part: str) -> float:
    checks = _info(rollout).get("checks")
    if not isinstance(checks, dict):
        return 0.0
    met = checks.get(part)
    if not isinstance(met, list):
        raise DataError(f"rollout {rollout.id}: {part} was not checked")
    return sum(map(bool, met)) / len(met) if met else 1.0


@reward
def tau_reward(task: Task, rollout: Rollout) -> float:
    """1 when the conversation came to its end and all that the task's reward is based on is met, else 0."""
    return float(_info(rollout)["reward"])


@reward
def tau_db(task: Task, rollout: Rollout) -> float:
    """1 when the database is as the ground-truth actions leave it, else 0."""
    return _share(rollout, "db")


@reward
def tau_env_assertions(task: Task, rollout: Rollout) -> float:
    """The share of the assertions about the state that hold."""
    return _share(rollout, "env_assertions")


@reward
def tau_actions(task: Task, rollout: Rollout) -> float:
    """The share of the ground-truth actions that were called."""
    return _share(rollout, "actions")


@reward
def tau_communicate(task: Task, rollout: Rollout) -> float:
    """The share of the facts that the agent gave to the user."""
    return _share(rollout, "communicate")


@reward
def tau_nl_assertions(task: Task, rollout: Rollout) -> float:
    """The share of the assertions in words that the judge found met; 0 where its answer could not be read."""
    if _info(rollout).get("judge") == "unreadable":
        return 0.0
    return _share(rollout, "nl_assertions")
