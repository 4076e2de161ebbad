"""Rewards of rollouts: run the functions, keep every value, and turn what fails into data."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from atropos_cli.domain.rollout import Rollout, RolloutFailure
from atropos_cli.domain.task import Task
from atropos_cli.ports.reward import Reward


class Scorer:
    """Applies a run's rewards. The total is the sum of weight * value over all rewards."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self._single = [reward for reward in rewards if reward.kind == "rollout"]
        self._group = [reward for reward in rewards if reward.kind == "group"]
        self._weights = {reward.name: reward.weight for reward in rewards}

    async def score(self, task: Task, rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
        """The rollouts with rewards; a failed one is left as it is, and one whose reward fails becomes failed."""
        values: list[dict[str, float]] = [{} for _ in rollouts]
        failures: list[RolloutFailure | None] = [rollout.failure for rollout in rollouts]
        for reward in self._single:
            for i, rollout in enumerate(rollouts):
                if failures[i] is None:
                    try:
                        value = reward.fn(task, rollout)
                        if inspect.isawaitable(value):
                            value = await value
                        values[i][reward.name] = _finite(value)
                    except Exception as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
                        failures[i] = score_failure(reward.name, error)
        for reward in self._group:
            alive = [i for i, failure in enumerate(failures) if failure is None]
            if not alive:
                break
            try:
                result = reward.fn(task, [rollouts[i] for i in alive])
                if inspect.isawaitable(result):
                    result = await result
                if len(result) != len(alive):
                    raise ValueError(f"{len(result)} values for {len(alive)} rollouts")
                for i, value in zip(alive, result, strict=True):
                    values[i][reward.name] = _finite(value)
            except Exception as error:  # noqa: BLE001 - a plugin's error is these rollouts' failure
                for i in alive:
                    values[i].pop(reward.name, None)
                    failures[i] = score_failure(reward.name, error)
        return tuple(self._with_rewards(rollout, values[i], failures[i]) for i, rollout in enumerate(rollouts))

    def _with_rewards(self, rollout: Rollout, values: dict[str, float], failure: RolloutFailure | None) -> Rollout:
        if failure is not None:
            changes: dict[str, Any] = {"rewards": values, "reward": None, "failure": failure}
        else:
            total = math.fsum(self._weights[name] * value for name, value in values.items())
            changes = {"rewards": values, "reward": total}
        return rollout.model_copy(update=changes)


def score_failure(name: str, error: Exception) -> RolloutFailure:
    """The failure of a rollout whose reward `name` raised."""
    return RolloutFailure(stage="score", type=type(error).__name__, message=f"reward {name}: {error}"[:2000])


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the reward is {number}, not a finite number")
    return number
