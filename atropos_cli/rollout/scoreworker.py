"""The process in which rewards run: a module for isolation.child, started by rollout.workers.

The first message names the rewards to load; then it gets jobs and answers rollout by rollout, so that its
parent knows which one hangs or kills it. Rewards run in the main thread (their own alarms work), and
asynchronous ones in this process's event loop. What they print goes nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.errors import AtroposError, ConfigError, PluginError
from atropos_cli.isolation.child import Message, WorkerChannel
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.scoring import Scorer

_TRACES = 3


class WrongCount(Exception):
    """A group reward returned a list of another length than the group."""


def main(channel: WorkerChannel) -> None:
    """Serve jobs until the parent goes away."""
    first = channel.receive()
    if first is None:
        return
    try:
        worker = Worker(first, channel)
    except AtroposError as error:
        answer: Message = {"error": {"message": error.message, "hint": error.hint}}
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises at import is told to the parent
        answer = {"error": {"message": f"{type(error).__name__}: {error}", "hint": None}}
    else:
        answer = {"ready": worker.described}
    channel.send({"id": first["id"], **answer})
    with asyncio.Runner() as runner:
        while "ready" in answer and (job := channel.receive()) is not None:
            runner.run(worker.work(job))


class Worker:
    """The loaded rewards, and what is needed to run them safely."""

    def __init__(self, config: Message, channel: WorkerChannel) -> None:
        self._channel = channel
        self._job = 0
        self._traces = 0
        self._trace: str | None = None
        loaded = load_rewards(config)
        self.described = [info for _, info in loaded]
        self._tell = len(loaded) > 1
        guarded = [self._guarded(reward) for reward, _ in loaded]
        self._single = [reward for reward in guarded if reward.kind == "rollout"]
        self._group = [reward for reward in guarded if reward.kind == "group"]
        if config.get("memory_mb"):
            _limit_memory(int(config["memory_mb"]))

    async def work(self, job: Message) -> None:
        """Answer one job: {"i": ...} for each rollout, {"group": ...} when there are group rewards, {"done": true}."""
        self._job = job["id"]
        try:
            task = Task.model_validate(job["task"])
            rollouts = [Rollout.model_validate(item) for item in job["rollouts"]]
        except ValueError as error:
            self._send({"invalid": " ".join(str(error).split())[:500]})
            return
        start = int(job.get("start", 0))
        for i in range(start, len(rollouts)):
            self._trace = None
            scorer = Scorer(self._single)
            (scored,) = await scorer.score(task, [rollouts[i]])
            _quiet_alarms()
            self._send({"i": i, **self._answer(scored, scorer.reported[0])})
        if self._group:
            # The parent knows who failed before, here or in a worker that died: they take no part.
            self._send({"singles": True})
            message = self._channel.receive()
            if message is None:
                return
            alive = message["alive"]
            self._trace = None
            scorer = Scorer(self._group)
            scored_group = await scorer.score(task, [rollouts[i] for i in alive])
            _quiet_alarms()
            answers = [
                {"i": i, **self._answer(item, metrics)}
                for i, item, metrics in zip(alive, scored_group, scorer.reported, strict=True)
            ]
            self._send({"group": answers})
        self._send({"done": True})

    def _send(self, message: Message) -> None:
        self._channel.send({"id": self._job, **message})

    def _answer(self, scored: Rollout, metrics: dict[str, float]) -> Message:
        answer: Message = {"rewards": scored.rewards}
        if metrics:
            answer["metrics"] = metrics
        if scored.failure is not None:
            answer["failure"] = scored.failure.model_dump()
            if self._trace is not None and self._traces < _TRACES:
                self._traces += 1
                answer["trace"] = self._trace
        return answer

    def _guarded(self, reward: Reward) -> Reward:
        """The reward with its exceptions of all kinds turned into ordinary ones, and its counts checked."""
        function = reward.fn

        def run(*args: Any) -> Any:
            if self._tell:
                self._send({"now": reward.name})
            with self._noting():
                value = function(*args)
            if inspect.isawaitable(value):
                return self._awaited(value, reward.kind, args)
            return self._checked(value, reward.kind, args)

        return Reward(run, name=reward.name, weight=reward.weight, kind=reward.kind)

    async def _awaited(self, value: Any, kind: str, args: tuple[Any, ...]) -> Any:
        with self._noting():
            result = await value
        return self._checked(result, kind, args)

    def _checked(self, value: Any, kind: str, args: tuple[Any, ...]) -> Any:
        if kind == "group":
            if len(value) != len(args[1]):
                raise WrongCount(f"{len(value)} values for {len(args[1])} rollouts")
        elif value is None:
            raise ValueError("no score: the reward returned None")
        return value

    @contextlib.contextmanager
    def _noting(self) -> Any:
        try:
            yield
        except BaseException as error:
            self._trace = "".join(traceback.format_exception(error))[-4000:]
            if isinstance(error, Exception):
                raise
            # SystemExit, KeyboardInterrupt, timeouts derived from BaseException: this rollout's failure, no more.
            raise type(type(error).__name__, (Exception,), {})(str(error)) from None


def load_rewards(config: Message) -> list[tuple[Reward, Message]]:
    """(reward with its weight, what it is) for each of a `RewardSet`. Raises PluginError and ConfigError."""
    from atropos_cli.plugins.discovery import get_registry
    from atropos_cli.rollout.references import (
        configured,
        environment_config,
        reward_objects,
        rewards_with,
        varied_rewards,
    )

    registry = get_registry()
    own: dict[str, Reward] = {}
    owner: Message = {}
    options: Message = config.get("options", {})
    if (environment := config.get("environment")) is not None:
        registration = registry.find("environment", environment)
        cls = registration.load()
        rewards = cls.rewards
        if (made_with := config.get("made_with")) is not None and varied_rewards(cls):
            with contextlib.suppress(ConfigError):  # an environment that has lost an option since then
                rewards = rewards_with(cls, environment_config(cls, environment, made_with))
        own = reward_objects(rewards)
        owner = {"dist": registration.dist, "version": registration.version}
    loaded = []
    for name, weight in config["rewards"]:
        if name in own:
            reward, origin = own[name], owner
        else:
            found = registry.find("reward", name)
            reward = found.load()
            origin = {"dist": found.dist, "version": found.version}
        if not isinstance(reward, Reward):
            raise PluginError(f"reward {name!r} is a {type(reward).__name__}, not a Reward")
        reward = configured(reward, options.get(reward.name, {}))
        if reward.roles():
            raise ConfigError(f"reward {reward.name!r} has no model to ask", hint=f"--{reward.name}.model NAME")
        if weight is not None:
            reward = reward.with_weight(float(weight))
        info = {
            "name": reward.name,
            "weight": reward.weight,
            "kind": reward.kind,
            **origin,
            "code": _code_digest(reward.fn),
            "details": reward.describe(),
        }
        loaded.append((reward, info))
    return loaded


def _code_digest(function: Callable[..., Any]) -> str | None:
    """The first 16 hex digits of the sha256 of the module's file: another extractor is another scorer."""
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else None
    except (TypeError, OSError):
        return None


def _limit_memory(megabytes: int) -> None:
    """Address space: that much more than is in use now, after everything was imported."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    limit = pages * resource.getpagesize() + megabytes * 1_000_000
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _quiet_alarms() -> None:
    """An alarm that a reward forgot must not go off in the next one."""
    signal.setitimer(signal.ITIMER_REAL, 0)
