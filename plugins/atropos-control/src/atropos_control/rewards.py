"""The reward of a rollout: what its environment gave."""

from __future__ import annotations

from atropos_cli.sdk import DataError, Rollout, Task, reward


@reward
def gymnasium_return(task: Task, rollout: Rollout) -> float:
    """The undiscounted sum of the rewards of the episode's steps."""
    value = rollout.info.get("return")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"rollout {rollout.id} has no return of an environment of Gymnasium")
    return float(value)
