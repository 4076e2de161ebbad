"""Rewards of rollouts: run the functions, keep every value, and turn what fails into data."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any

from atropos_cli.domain.rollout import Rollout, RolloutFailure
from atropos_cli.domain.score import Score
from atropos_cli.domain.task import Task
from atropos_cli.errors import Unscored
from atropos_cli.ports.reward import Reward
from atropos_cli.redaction import redacted
from atropos_cli.rollout.loopthread import FOREVER, LoopThread
from atropos_cli.rollout.returned import values_of
from atropos_cli.rollout.stopping import TOO_LATE, RewardTimeout
from atropos_cli.rollout.systematic import place_of

_LEAST_S = 1.0
_CANCEL_S = 1.0
"""Seconds in which a reward that was cancelled may end."""


class Scorer:
    """Applies a run's rewards. The total is the sum of weight * value over all rewards."""

    reported: Sequence[dict[str, float]] = ()
    """The metrics that the rewards of the last call of score() gave, for each rollout."""

    def __init__(self, rewards: Sequence[Reward]) -> None:
        self._rewards = sorted(rewards, key=lambda reward: reward.kind == "group")  # of groups last
        self.compares = any(reward.kind == "group" for reward in rewards)
        self._weights = {reward.name: reward.weight for reward in rewards}

    async def score(self, task: Task, rollouts: Sequence[Rollout], seconds: float | None = None) -> tuple[Rollout, ...]:
        """The rollouts with rewards; a failed one is left as it is, and one whose reward fails becomes failed.

        seconds: what the rewards may take together; a rollout whose reward is not done then fails (RewardTimeout).
        Functions that are not asynchronous are held to it on a LoopThread only, where they run in the main thread.
        """
        values: list[dict[str, float]] = [{} for _ in rollouts]
        metrics: list[dict[str, float]] = [{} for _ in rollouts]
        failures: list[RolloutFailure | None] = [rollout.failure for rollout in rollouts]
        clock = _Clock(seconds)
        for reward in self._rewards:
            alive = [i for i, failure in enumerate(failures) if failure is None]
            if not alive:
                break
            results = await _values(reward, task, [rollouts[i] for i in alive], clock)
            for i, result in zip(alive, results, strict=True):
                try:
                    if isinstance(result, Exception | SystemExit):
                        raise result
                    values[i][reward.name] = _finite(result)
                    metrics[i] |= _metrics(result)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
                    if reward.weight or len(self._rewards) == 1 or not isinstance(error, Unscored):
                        failures[i] = score_failure(reward, error)
            if reward.kind == "group" and any(failures[i] is not None for i in alive):
                # Values of a group belong together.
                reason = next(failures[i] for i in alive if failures[i] is not None)
                for i in alive:
                    values[i].pop(reward.name, None)
                    failures[i] = reason
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


class _Clock:
    """The seconds that a group's rewards may still take together. None: as long as they like."""

    def __init__(self, seconds: float | None) -> None:
        self._left = FOREVER if seconds is None else seconds
        self._least = min(self._left, _LEAST_S)

    @property
    def left(self) -> float:
        """What the next reward may take: a little even when the others took all."""
        return max(self._left, self._least)

    def used(self, seconds: float) -> None:
        self._left -= seconds


async def _values(reward: Reward, task: Task, rollouts: Sequence[Rollout], clock: _Clock) -> list[Any]:
    """The reward's value for each rollout, or the exception in its place; asynchronous ones are awaited together."""
    group = reward.kind == "group"
    calls = [partial(reward.fn, task, one) for one in ([rollouts] if group else rollouts)]
    if (loop := LoopThread.here()) is not None and not inspect.iscoroutinefunction(reward.fn):
        results, used = await loop.in_caller(calls, clock.left)
        clock.used(used)
    else:
        results = [_called(call) for call in calls]
    waiting = {
        i: asyncio.ensure_future(_without_exit(item)) for i, item in enumerate(results) if inspect.isawaitable(item)
    }
    if waiting:
        began = time.monotonic()
        late = await _wait(waiting.values(), clock.left)
        clock.used(time.monotonic() - began)
        for i, job in waiting.items():
            results[i] = _too_late(job) if job in late else _result(job)
    if not group:
        return results
    (result,) = results
    if isinstance(result, Exception | SystemExit):
        return [result] * len(rollouts)
    try:
        return values_of(result, len(rollouts))
    except (TypeError, ValueError) as error:
        return [error] * len(rollouts)


def _called(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the rollout's failure
        return error


async def _wait(jobs: Collection[asyncio.Future[Any]], seconds: float) -> list[asyncio.Future[Any]]:
    """Wait for all; at the end of the time, or when this is cancelled, cancel the late ones and give them a moment."""
    late: list[asyncio.Future[Any]] = []
    try:
        await asyncio.wait(jobs, timeout=seconds)
    finally:
        late = [job for job in jobs if not job.done()]
        for job in late:
            job.cancel()
        if late:
            await asyncio.wait(late, timeout=_CANCEL_S)
    return late


def _too_late(job: asyncio.Future[Any]) -> RewardTimeout:
    ignored = not job.done()
    job.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # else asyncio complains of it
    return RewardTimeout(f"{TOO_LATE}{', and it ignored that it was cancelled' if ignored else ''}")


def _result(job: asyncio.Future[Any]) -> Any:
    if job.cancelled():
        return RuntimeError("it was cancelled")
    error = job.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error if error is not None else job.result()


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
