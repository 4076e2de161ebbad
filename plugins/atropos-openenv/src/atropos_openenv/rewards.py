"""The reward of an episode: what the server said of its steps."""

from __future__ import annotations

from atropos_cli.sdk import DataError, Rollout, Task, reward


@reward
def openenv_return(task: Task, rollout: Rollout) -> float:
    """The sum of the rewards that an OpenEnv server gave for the steps of the episode."""
    rewards = rollout.info.get("step_rewards")
    known = [value for value in rewards if isinstance(value, int | float)] if isinstance(rewards, list) else []
    if not isinstance(rewards, list) or len(known) < len(rewards):
        raise DataError(f"rollout {rollout.id} has no rewards of an OpenEnv server")
    return float(sum(known))
