"""The reward of a rollout: what its environment said."""

from __future__ import annotations

from atropos_cli.sdk import DataError, Rollout, Task, reward


@reward
def atroposlib_score(task: Task, rollout: Rollout) -> float:
    """The score that the environment of atroposlib gave to the rollout when it was made."""
    score = rollout.info.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise DataError(f"rollout {rollout.id} has no score of an environment of atroposlib")
    return float(score)
