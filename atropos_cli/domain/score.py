"""What a reward may return in the place of a plain number."""

from __future__ import annotations

from collections.abc import Mapping


class Score(float):
    """A reward's value together with numbers worth reporting; they become `rollout.metrics` and train nothing."""

    metrics: Mapping[str, float]

    def __new__(cls, value: float, metrics: Mapping[str, float] | None = None) -> Score:
        score = super().__new__(cls, value)
        score.metrics = dict(metrics or {})
        return score
