"""A pool of warm processes that run rewards, each killable: a reward that hangs or crashes costs one rollout.

    async with ScorePool(RewardSet((("exact_match", None),)), PoolOptions(workers=4, deadline=30)) as pool:
        rollouts = await pool.score(task, rollouts)

A rollout whose reward raises, hangs past the deadline, ends the process or runs out of memory fails at
stage "score" with a reason; the others are scored. Processes are started when needed, kept, and started
again after a kill. Each has its own process group, which is killed with it.
"""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from atropos_cli.domain.rollout import Rollout, RolloutFailure
from atropos_cli.domain.task import Task
from atropos_cli.errors import PluginError
from atropos_cli.isolation.child import Message
from atropos_cli.isolation.process import WorkerPool, WorkerProcess
from atropos_cli.isolation.spec import WorkerCrashed, WorkerTimeout


@dataclass(frozen=True, slots=True)
class RewardSet:
    """What a worker loads: (name, weight or None for the reward's own) each; environment: whose own rewards count.

    options: of the rewards that have some, by their names. made_with: the options of the environment, None where they
    are not known.
    """

    rewards: tuple[tuple[str, float | None], ...]
    environment: str | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    made_with: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """deadline: seconds one reward may take for one rollout, or for a group.

    memory_mb: address space beyond what a worker holds after loading; None: without a limit.
    """

    workers: int = 2
    deadline: float = 30.0
    memory_mb: int | None = None
    start_timeout: float = 120.0


@dataclass(slots=True)
class Verdict:
    """The scores of one rollout. reward: the weighted sum, None with a failure. trace: of the first few exceptions."""

    rewards: dict[str, float] = field(default_factory=dict)
    reward: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    failure: Message | None = None
    trace: str | None = None

    def fail(self, type: str, message: str) -> None:
        self.failure = {"stage": "score", "type": type, "message": message[:2000]}


class ScorePool:
    """Use as an async context manager, in one event loop, on the main thread."""

    def __init__(self, rewards: RewardSet, options: PoolOptions | None = None) -> None:
        self._rewards = rewards
        self._options = options or PoolOptions()
        self._pool = WorkerPool(self._spawn, max(1, self._options.workers))
        self.scorers: list[Message] = []

    @property
    def restarts(self) -> int:
        """How many workers were lost."""
        return self._pool.restarts

    async def start(self) -> list[Message]:
        """Start one worker and return what it loaded: {name, weight, kind, dist, version, code} for each reward.

        Raises PluginError when a reward cannot be loaded.
        """
        async with self._pool.lease():
            return self.scorers

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all workers. Safe to call twice."""
        await self._pool.close()

    async def score(self, task: Task, rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
        """The rollouts with rewards filled in; failed ones stay as they are."""
        verdicts = await self.score_raw(
            task.model_dump(mode="json"), [rollout.model_dump(mode="json", exclude_none=True) for rollout in rollouts]
        )
        result = []
        for rollout, verdict in zip(rollouts, verdicts, strict=True):
            if rollout.failure is not None:
                result.append(rollout)
                continue
            failure = RolloutFailure.model_validate(verdict.failure) if verdict.failure is not None else None
            changes = {
                "rewards": verdict.rewards,
                "reward": verdict.reward,
                "metrics": rollout.metrics | verdict.metrics,
                "failure": failure,
            }
            result.append(rollout.model_copy(update=changes))
        return tuple(result)

    async def score_raw(self, task: Message, rollouts: Sequence[Message]) -> list[Verdict]:
        """The same on JSON objects (domain.Task, domain.Rollout). A rollout with a failure gets an empty verdict."""
        verdicts = [Verdict() for _ in rollouts]
        for verdict, rollout in zip(verdicts, rollouts, strict=True):
            if rollout.get("failure") is not None:
                verdict.failure = rollout["failure"]
        job = _Job(task, list(rollouts), verdicts)
        while not job.done:
            await self._try(job)
        weights = {info["name"]: float(info["weight"]) for info in self.scorers}
        for verdict in verdicts:
            if verdict.failure is None:
                verdict.reward = math.fsum(weights[name] * value for name, value in verdict.rewards.items())
        return verdicts

    async def _try(self, job: _Job) -> None:
        """Run a job on a worker as far as it comes; a worker that hangs or dies is replaced, its rollout fails."""
        try:
            async with self._pool.lease() as worker:
                await _run(worker, job, self._options.deadline)
        except WorkerTimeout:
            job.blame("Timeout", f"{job.current()} did not answer within {self._options.deadline:g} s")
        except WorkerCrashed as error:
            if job.is_second_death():
                job.blame("WorkerDied", f"{job.current()}: {error}")

    async def _spawn(self) -> WorkerProcess:
        """A worker that has loaded the rewards. Raises PluginError."""
        log = None if os.environ.get("ATROPOS_DEBUG") else subprocess.DEVNULL
        worker = await WorkerProcess.start("atropos_cli.rollout.scoreworker", log=log)
        config = {
            "rewards": [list(pair) for pair in self._rewards.rewards],
            "environment": self._rewards.environment,
            "made_with": self._rewards.made_with,
            "options": {name: dict(given) for name, given in self._rewards.options.items()},
            "memory_mb": self._options.memory_mb,
        }
        try:
            with worker.call(config) as call:
                answer = await call.next(self._options.start_timeout)
            if "error" in answer:
                raise PluginError(answer["error"]["message"], hint=answer["error"]["hint"])
        except (WorkerCrashed, WorkerTimeout) as error:
            await asyncio.shield(worker.kill())
            why = "did not start in time" if isinstance(error, WorkerTimeout) else str(error)
            raise PluginError(f"the process for rewards {why}", hint="ATROPOS_DEBUG=1 shows what it printed") from error
        except BaseException:
            await asyncio.shield(worker.kill())
            raise
        self.scorers = answer["ready"]
        return worker


class _Job:
    """A group being scored: which rollouts are done, and who is to blame when the worker goes."""

    def __init__(self, task: Message, rollouts: list[Message], verdicts: list[Verdict]) -> None:
        self.task = task
        self.rollouts = rollouts
        self.verdicts = verdicts
        self.next = 0
        self.reward: str | None = None
        self.in_group = False
        self.done = not rollouts
        self._deaths: Counter[tuple[int, bool]] = Counter()

    def current(self) -> str:
        what = f"reward {self.reward}" if self.reward else "the reward"
        return f"{what} (of the whole group)" if self.in_group else what

    def alive(self) -> list[int]:
        return [i for i, verdict in enumerate(self.verdicts) if verdict.failure is None]

    def is_second_death(self) -> bool:
        """Note a death at this place. The first may be the work of an earlier rollout, so it is tried once more."""
        place = (self.next, self.in_group)
        self._deaths[place] += 1
        return self._deaths[place] > 1

    def blame(self, type: str, message: str) -> None:
        """The rollout that was being scored failed; with a group's reward, all of them."""
        if self.in_group or self.next >= len(self.rollouts):
            for i in self.alive():
                self.verdicts[i].fail(type, message)
            self.done = True
        else:
            self.verdicts[self.next].fail(type, message)
            self.next += 1
        self.reward = None

    def hear(self, message: Message) -> None:
        """Take a message of the worker into account."""
        if "now" in message:
            self.reward = str(message["now"])
        elif "group" in message:
            for item in message["group"]:
                self._take(item)
        elif "i" in message:
            self._take(message)
            self.next = message["i"] + 1
            self.reward = None
        elif "invalid" in message:
            for i in self.alive():
                self.verdicts[i].fail("InvalidRollout", message["invalid"])
            self.done = True
        elif message["done"]:
            self.done = True

    def _take(self, message: Message) -> None:
        verdict = self.verdicts[message["i"]]
        if self.rollouts[message["i"]].get("failure") is not None:
            return
        verdict.rewards |= message["rewards"]
        verdict.metrics |= message.get("metrics", {})
        if message.get("failure") is not None:
            verdict.failure = message["failure"]
            verdict.trace = message.get("trace")


async def _run(worker: WorkerProcess, job: _Job, deadline: float) -> None:
    """Work on a job until it is done. Raises WorkerTimeout or WorkerCrashed, with the job telling how far it came."""
    job.in_group = False
    job.reward = None
    with worker.call({"task": job.task, "rollouts": job.rollouts, "start": job.next}) as call:
        while not job.done:
            message = await call.next(deadline)
            if "singles" in message:
                job.in_group = True
                call.send({"alive": job.alive()})
                continue
            try:
                job.hear(message)
            except (KeyError, IndexError, TypeError) as error:
                raise WorkerCrashed("something else was written to its answers") from error
