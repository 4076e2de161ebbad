"""Rewards of a played game. The total is the share of points reached, +1 for winning, -1 for losing.

Where a rollout is one turn of a game (group_by turn), each is that turn's discounted credit instead.
"""

from __future__ import annotations

from atropos_cli.sdk import Rollout, Task, reward


def _credit(rollout: Rollout, name: str) -> float | None:
    """A turn's discounted credit, where a rollout is one turn; None where it is a whole game."""
    credit = rollout.info.get("credit")
    if not isinstance(credit, dict):
        return None
    value = credit[name]
    if not isinstance(value, int | float):
        raise TypeError(f"the rollout's credit {name!r} is {value!r}, not a number")
    return float(value)


def _number(rollout: Rollout, name: str) -> float:
    """A number from what the episode reports; a rollout of something else has none and fails to score."""
    value = rollout.info[name]
    if not isinstance(value, int | float):
        raise TypeError(f"the rollout's {name!r} is {value!r}, not a number")
    return float(value)


@reward(name="textworld_score")
def score(task: Task, rollout: Rollout) -> float:
    """Points reached as a share of the game's maximum, 0 to 1."""
    credit = _credit(rollout, "score")
    return _number(rollout, "score") / max(_number(rollout, "max_score"), 1.0) if credit is None else credit


@reward(name="textworld_won")
def won(task: Task, rollout: Rollout) -> float:
    """1 for a game that was won, else 0."""
    credit = _credit(rollout, "won")
    return _number(rollout, "won") if credit is None else credit


@reward(name="textworld_lost")
def lost(task: Task, rollout: Rollout) -> float:
    """-1 for a game that was lost, else 0. Running out of steps is not losing."""
    credit = _credit(rollout, "lost")
    return 0.0 - (_number(rollout, "lost") if credit is None else credit)
