"""Rewards of a played game. The total is the share of points reached, +1 for winning, -1 for losing."""

from __future__ import annotations

from atropos_cli.sdk import Rollout, Task, reward


def _number(rollout: Rollout, name: str) -> float:
    """A number from what the episode reports; a rollout of something else has none and fails to score."""
    value = rollout.info[name]
    if not isinstance(value, int | float):
        raise TypeError(f"the rollout's {name!r} is {value!r}, not a number")
    return float(value)


@reward(name="textworld_score")
def score(task: Task, rollout: Rollout) -> float:
    """Points reached as a share of the game's maximum, 0 to 1."""
    return _number(rollout, "score") / max(_number(rollout, "max_score"), 1.0)


@reward(name="textworld_won")
def won(task: Task, rollout: Rollout) -> float:
    """1 for a game that was won, else 0."""
    return _number(rollout, "won")


@reward(name="textworld_lost")
def lost(task: Task, rollout: Rollout) -> float:
    """-1 for a game that was lost, else 0. Running out of steps is not losing."""
    return -_number(rollout, "lost")
