"""Rewards: what the scorers of the task said when the rollout was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from atropos_cli.sdk import Reward, Rollout, Score, Task, Unscored, reward

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def number(value: Any) -> float | None:
    """A plain value of a score as a number, as inspect's value_to_float() does it; None where it has none."""
    if isinstance(value, str):
        known = _GRADES.get(value, _WORDS.get(value.lower()))
        if known is not None:
            return known
        try:
            value = float(value)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def components(value: Any) -> dict[str, float]:
    """The numbers in a score that is a dict or a list, by key or place; {} for a plain value."""
    if isinstance(value, Mapping):
        pairs = [(str(key), number(item)) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(str(place), number(item)) for place, item in enumerate(value)]
    else:
        return {}
    return {key: found for key, found in pairs if found is not None}


def value_of(value: Any) -> float | None:
    """The reward for a score: its number, or the mean of its components; None where it has none."""
    if isinstance(value, Mapping | list):
        parts = components(value)
        return math.fsum(parts.values()) / len(parts) if parts else None
    return number(value)


def scored(rollout: Rollout, name: str | None) -> Score:
    """The value of a scorer, of the first one without a name, with all components as metrics. Raises Unscored."""
    scores = rollout.info.get("scores")
    if not isinstance(scores, dict) or not scores:
        raise Unscored(f"rollout {rollout.id} has no score of a task of inspect_ai")
    chosen = next(iter(scores)) if name is None else name
    if chosen not in scores:
        others = ", ".join(map(str, scores))
        raise Unscored(
            f"the scorer {chosen} gave no score, {others} did; where the task has other scorers each time it is "
            "made, --reward inspect_score takes the first of them"
        )
    given = scores[chosen]
    value = value_of(given.get("value")) if isinstance(given, dict) else None
    if value is None:
        raise Unscored(f"the score of {chosen} has no number: {given!r:.200}")
    assert isinstance(given, dict)
    return Score(value, {f"{chosen}.{key}": item for key, item in components(given.get("value")).items()})


@reward
def inspect_score(task: Task, rollout: Rollout) -> float:
    """The value of the first scorer of the inspect_ai task, given when the rollout was made."""
    return scored(rollout, None)


def scorer_reward(name: str, weight: float) -> Reward:
    """The reward that has the name of a scorer and its value."""

    def value(task: Task, rollout: Rollout) -> float:
        return scored(rollout, name)

    value.__doc__ = f"The value of the task's scorer {name}."
    return Reward(value, name=name, weight=weight)
