"""The reward of a rollout: what the server's verify said at its end."""

from __future__ import annotations

import math

from atropos_cli.sdk import DataError, Rollout, Task, reward


@reward
def nemo_gym_reward(task: Task, rollout: Rollout) -> float:
    """The reward that a resource server of NeMo Gym gave to the rollout."""
    value = rollout.info.get("verified_reward")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"rollout {rollout.id} has no reward of a server of NeMo Gym")
    return float(value)
