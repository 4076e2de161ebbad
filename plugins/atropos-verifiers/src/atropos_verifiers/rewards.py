"""The reward of a rollout: what its environment said."""

from __future__ import annotations

from atropos_cli.sdk import DataError, Rollout, Task, reward


@reward
def verifiers_reward(task: Task, rollout: Rollout) -> float:
    """The reward that the environment of verifiers gave to the rollout when it was made."""
    value = rollout.info.get("reward")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"rollout {rollout.id} has no reward of an environment of verifiers")
    return float(value)
