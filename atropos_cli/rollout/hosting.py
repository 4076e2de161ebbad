"""An environment whose episodes another program plays: it brings the replies, and gets messages and rewards."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import Message
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.errors import DataError, UsageError
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.environment import Environment, GameEnvironment
from atropos_cli.rollout.episodes import EpisodeState, with_tools
from atropos_cli.rollout.mixture import Mixture
from atropos_cli.rollout.references import environment_config, own_rewards
from atropos_cli.rollout.returned import episode_of, messages_of, task_of, tasks_of
from atropos_cli.rollout.scoring import Scorer
from atropos_cli.rollout.stopping import as_failures
from atropos_cli.rollout.tasks import check_split

_log = logging.getLogger(__name__)

_MOST_WALKED = 100_000
"""Tasks that are kept of an iterable that has no index, and may have no end."""

_REWARDS_S = 300.0
"""Seconds that the rewards of a rollout may take together."""


class Hosted:
    """An environment with its own rewards. Tasks are numbered; episodes of them may be played at the same time.

    Raises UsageError for an environment that cannot be played so.
    """

    def __init__(
        self, name: str, options: Mapping[str, Any], registry: Registry, *, split: str | None = None, seed: int = 0
    ) -> None:
        registration = registry.find("environment", name)
        cls: type[Environment] = registration.load()
        check_hosted(cls, registration.name)
        self.name = registration.name
        self.summary = registration.summary
        config = environment_config(cls, registration.name, options)
        self.environment = cls(config)
        self.split = split or cls.splits[0]
        check_split(cls, self.split)
        self._scorer = Scorer(own_rewards(cls, config, registry))
        self._seed = seed
        self._source: Sequence[Task] | None = None

    async def open(self, *, workers: int = 1) -> None:
        """Open the environment. workers: episodes that are played at the same time."""
        await self.environment.open(workers=workers, seed=self._seed)

    async def close(self) -> None:
        """Close it."""
        await self.environment.close()

    @property
    def compares(self) -> bool:
        """Does a reward look at all rollouts of a task together? See score_together."""
        return self._scorer.compares

    def count(self) -> int | None:
        """How many tasks the split has; None for any number. Raises DataError where it has none."""
        source = self._tasks()
        if getattr(source, "length", 0) is None:
            return None
        if not len(source):
            raise DataError(f"environment {self.name!r} has no tasks in split {self.split!r}")
        return len(source)

    def task(self, number: int) -> Task:
        """Task `number` of the split. After the last one comes the first one again."""
        count = self.count()
        return task_of(self.environment, self._tasks()[number if count is None else number % count])

    def _tasks(self) -> Sequence[Task]:
        source = self._source
        if source is None:
            found = tasks_of(self.environment, self.split)
            source = self._source = found if isinstance(found, Sequence) else tuple(islice(found, _MOST_WALKED))
        return source

    def episode(self, task: Task) -> HostedEpisode:
        """An episode of the task."""
        return HostedEpisode(self, task)

    async def score(self, task: Task, rollout: Rollout) -> Rollout:
        """The rollout with its rewards; one that failed, or whose reward fails, has a failure."""
        (scored,) = await self._scorer.score(task, [rollout], _REWARDS_S)
        return scored

    async def score_together(self, episodes: Sequence[HostedEpisode]) -> Sequence[Rollout]:
        """The rollouts of episodes of one task, as they are now, with rewards; a reward may compare them."""
        rollouts = [episode.rollout(number) for number, episode in enumerate(episodes)]
        return await self._scorer.score(episodes[0].told_task, rollouts, _REWARDS_S)


def check_hosted(cls: type[Environment], name: str) -> None:
    """Raises UsageError where episodes of the environment cannot be played by another program."""
    if issubclass(cls, GameEnvironment):
        raise UsageError(f"{name} is a game of several players: only episodes of one model can be played elsewhere")
    if issubclass(cls, Mixture):
        raise UsageError(f"{name} is a mixture", hint="take each of its environments by itself")
    if cls.roles:
        raise UsageError(f"{name} asks other models ({', '.join(cls.roles)}), which only our own runs have")


class HostedEpisode:
    """One episode, played by hand: reset, steps with the replies of a model, score, close."""

    def __init__(self, host: Hosted, task: Task) -> None:
        self.task = task
        self._host = host
        self._episode = episode_of(host.environment, task)
        self._state = EpisodeState(0, self._episode)
        self._lock = asyncio.Lock()
        self._broken: BaseException | None = None
        """What a step raised: the episode cannot continue after it."""

    @property
    def over(self) -> bool:
        """Has the environment ended it?"""
        return self._state.over

    @property
    def messages(self) -> Sequence[Message]:
        """All so far."""
        return self._state.messages

    @property
    def tools(self) -> Sequence[JsonDict]:
        """The functions that the model may call in its next reply, as OpenAI's schemas."""
        return tuple(self._episode.tools)

    async def reset(self) -> Sequence[Message]:
        """The first messages."""
        async with self._lock:
            first = messages_of(self._episode, "reset", await _called(self._episode.reset))
            self._state.messages = list(first)
            return first

    async def step(self, reply: Message) -> Sequence[Message]:
        """What the model sees after its reply; nothing at the end. After an error there is no other step."""
        async with self._lock:
            self._check()
            try:
                return await self._step(reply)
            except BaseException as error:
                self._broken = error
                raise

    async def _step(self, reply: Message) -> Sequence[Message]:
        state, episode = self._state, self._episode
        state.wishes()  # notes the tools that the reply may call
        state.messages.append(reply)
        read = state.read(reply)
        if read.fault is None:
            said = await _called(episode.step, read.message)
        else:
            said = await _called(episode.malformed, read.message, read.fault)
        if said is None:
            state.over = True
            state.stop = episode.stop_reason or "done"
            return ()
        method = "step" if read.fault is None else "malformed"
        new = messages_of(episode, method, said)
        state.messages.extend(new)
        return new

    def _check(self) -> None:
        if self._broken is not None:
            raise DataError(f"an earlier step of the episode failed: {type(self._broken).__name__}: {self._broken}")

    @property
    def told_task(self) -> Task:
        """The task with the tools that were offered, as rewards get it."""
        return with_tools(self.task, [self._state])

    def rollout(self, number: int = 0) -> Rollout:
        """The rollout as it is now, without rewards; the number is the last part of its id."""
        if self._broken is not None and self._state.failure is None:
            self._state.fail("environment", self._broken)
        rollout = self._state.rollout(self.task.id, self.task)
        return rollout.model_copy(update={"id": f"{self.task.id}/{number}"})

    async def score(self) -> Rollout:
        """The rollout as it is now, with rewards. Raises DataError where the environment or a reward fails."""
        self._check()
        scored = await self._host.score(self.told_task, self.rollout())
        if scored.failure is not None:
            raise DataError(scored.failure.message)
        return scored

    async def close(self) -> None:
        """Close it. An error is only logged: the episode is over."""
        try:
            await _called(self._episode.close)
        except Exception as error:  # noqa: BLE001 - a plugin's error
            _log.warning("%s: close() of an episode failed: %s: %s", self._host.name, type(error).__name__, error)


async def _called(method: Callable[..., Any], *arguments: Any) -> Any:
    """The value of an episode's method. A sys.exit() in it is an error as any other, and does not end our program."""
    try:
        with as_failures():
            given = method(*arguments)
            return await given if inspect.isawaitable(given) else given
    except SystemExit as error:
        quit_as_error = RuntimeError(f"it called sys.exit({error.code!r})")
        raise quit_as_error.with_traceback(error.__traceback__) from error
