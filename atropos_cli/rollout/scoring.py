"""Rewards of rollouts: run the functions, keep every value, and turn what fails into data."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Sequence
from typing import Any

from atropos_cli.domain.rollout import Rollout, RolloutFailure
from atropos_cli.domain.score import Score
from atropos_cli.domain.task import Task
from atropos_cli.ports.reward import Reward
from atropos_cli.redaction import redacted
from atropos_cli.rollout.returned import values_of
from atropos_cli.rollout.systematic import place_of


class Scorer:
    """Applies a run's rewards. The total is the sum of weight * value over all rewards."""

    reported: Sequence[dict[str, float]] = ()
    """The metrics that the rewards of the last call of score() gave, for each rollout."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self._single = [reward for reward in rewards if reward.kind == "rollout"]
        self._group = [reward for reward in rewards if reward.kind == "group"]
        self._weights = {reward.name: reward.weight for reward in rewards}

    async def score(self, task: Task, rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
        """The rollouts with rewards; a failed one is left as it is, and one whose reward fails becomes failed."""
        values: list[dict[str, float]] = [{} for _ in rollouts]
        metrics: list[dict[str, float]] = [{} for _ in rollouts]
        failures: list[RolloutFailure | None] = [rollout.failure for rollout in rollouts]
        for reward in self._single:
            alive = [i for i, failure in enumerate(failures) if failure is None]
            results = await _each(reward, task, [rollouts[i] for i in alive])
            for i, result in zip(alive, results, strict=True):
                try:
                    if isinstance(result, Exception | SystemExit):
                        raise result
                    values[i][reward.name] = _finite(result)
                    metrics[i] |= _metrics(result)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
                    failures[i] = score_failure(reward, error)
        for reward in self._group:
            alive = [i for i, failure in enumerate(failures) if failure is None]
            if not alive:
                break
            try:
                result = reward.fn(task, [rollouts[i] for i in alive])
                if inspect.isawaitable(result):
                    result = await result
                for i, value in zip(alive, values_of(result, len(alive)), strict=True):
                    values[i][reward.name] = _finite(value)
                    metrics[i] |= _metrics(value)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is these rollouts' failure
                for i in alive:
                    values[i].pop(reward.name, None)
                    failures[i] = score_failure(reward, error)
        self.reported = metrics
        return tuple(
            self._with_rewards(rollout, values[i], metrics[i], failures[i]) for i, rollout in enumerate(rollouts)
        )

    def _with_rewards(
        self, rollout: Rollout, values: dict[str, float], metrics: dict[str, float], failure: RolloutFailure | None
    ) -> Rollout:
        if failure is not None:
            changes: dict[str, Any] = {"rewards": values, "reward": None, "failure": failure}
        else:
            total = math.fsum(self._weights[name] * value for name, value in values.items())
            changes = {"rewards": values, "reward": total}
        if metrics:
            changes["metrics"] = rollout.metrics | metrics
        return rollout.model_copy(update=changes)


async def _each(reward: Reward, task: Task, rollouts: Sequence[Rollout]) -> list[Any]:
    """The reward's value for each rollout, or the exception in its place; asynchronous ones are awaited together."""
    results: list[Any] = []
    waiting: dict[int, Awaitable[Any]] = {}
    for i, rollout in enumerate(rollouts):
        try:
            results.append(reward.fn(task, rollout))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the rollout's failure
            results.append(error)
        else:
            if inspect.isawaitable(results[i]):
                waiting[i] = _without_exit(results[i])
    if waiting:
        values = await asyncio.gather(*waiting.values(), return_exceptions=True)
        for i, value in zip(waiting, values, strict=True):
            if isinstance(value, BaseException) and not isinstance(value, Exception):
                raise value
            results[i] = value
    return results


async def _without_exit(waiting: Awaitable[Any]) -> Any:
    """Await a plugin's coroutine. In a task of its own its sys.exit() would stop the event loop, not only the task."""
    try:
        return await waiting
    except SystemExit as error:
        quit_as_error = RuntimeError(f"it called sys.exit({error.code!r})")
        raise quit_as_error.with_traceback(error.__traceback__) from error  # its place is the plugin's


def _metrics(value: Any) -> dict[str, float]:
    """The numbers that a Score carries, those that are finite."""
    if not isinstance(value, Score):
        return {}
    return {name: float(number) for name, number in value.metrics.items() if math.isfinite(number)}


def score_failure(reward: Reward, error: BaseException) -> RolloutFailure:
    """The failure of a rollout whose reward raised."""
    message = redacted(f"reward {reward.name}: {error}")[:2000]
    failure = RolloutFailure(stage="score", type=type(error).__name__, message=message)
    return failure.at(place_of(error, reward.fn))


def _finite(value: Any) -> float:
    if value is None:
        raise TypeError("it returned nothing: return a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the reward is {number}, not a finite number")
    return number
