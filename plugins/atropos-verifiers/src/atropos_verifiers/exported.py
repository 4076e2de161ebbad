"""An environment of ours as a taskset of verifiers from 0.4, for packages that `atropos export verifiers` writes.

    SumsTaskset, SumsEnv = exported("arithmetic", {"difficulty": "easy"})

Our episode is the user of the conversation, and our rewards score it, in verifiers' own process and runner.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_cli.sdk import DataError, Environment, Message, Rollout, Task, assistant
from atropos_cli.sdk.authoring import load_registry
from atropos_cli.sdk.engine import Scorer, make_config, own_rewards


class Exported:
    """The environment, opened once, and its rewards."""

    def __init__(self, name: str, options: Mapping[str, Any], split: str, seed: int) -> None:
        registry = load_registry()
        cls = registry.find("environment", name).load()
        config = make_config(cls.Config, options, owner=f"environment {name!r}", env_prefix="ATROPOS_ENV__")
        self.environment: Environment = cls(config)
        self.split = split
        self._seed = seed
        self._opened: asyncio.Task[None] | None = None
        rewards = own_rewards(cls, config, registry)
        self.weights = {reward.name: reward.weight for reward in rewards}
        self.scorer = Scorer(rewards)

    async def open(self) -> None:
        """Open the environment, once."""
        if self._opened is None:
            self._opened = asyncio.ensure_future(self.environment.open(seed=self._seed))
        await asyncio.shield(self._opened)

    async def play(self, task: Task, ask: Any) -> Rollout:
        """One episode, scored. ask(messages, first) gives the model's reply, or None where verifiers ended it."""
        episode = self.environment.episode(task)
        try:
            messages = [*await _value(episode.reset())]
            if episode.tools:
                raise DataError("an environment whose model calls tools cannot be exported")
            new: Sequence[Message] | None = messages
            first = True
            while new is not None and (reply := await ask(new, first)) is not None:
                first = False
                messages.append(assistant(reply))
                new = await _value(episode.step(messages[-1]))
                messages += new or ()
            rollout = Rollout(
                id="0", task_id=task.id, messages=tuple(messages), info=episode.result(), metrics=episode.metrics()
            )
        finally:
            await _value(episode.close())
        (scored,) = await self.scorer.score(task, [rollout])
        if scored.failure is not None:
            raise DataError(scored.failure.message)
        return scored


async def _value(given: Any) -> Any:
    return await given if inspect.isawaitable(given) else given


def wire(message: Message) -> dict[str, Any]:
    """A message as verifiers reads it."""
    return message.model_dump(mode="json", include={"role", "content"})


def exported(
    name: str, options: Mapping[str, Any] | None = None, *, split: str = "train", seed: int = 0
) -> tuple[type[Any], type[Any]]:
    """The Taskset and the Env. split: whose tasks. seed: given to open()."""
    import verifiers.v1 as vf

    ours = Exported(name, options or {}, split, seed)

    class Data(vf.TaskData):  # type: ignore[misc]
        """A task of ours, whole."""

        task: dict[str, Any]

    class OurTask(vf.Task[Data]):  # type: ignore[misc]
        """Scored by the Env, which has the episode."""

    class OurTaskset(vf.Taskset[OurTask, vf.TasksetConfig]):  # type: ignore[misc]
        """The tasks of the split, in order; those of an endless stream for ever."""

        def load(self) -> Any:
            for place, task in enumerate(ours.environment.tasks(ours.split)):
                data = Data(idx=place, id=task.id, name=task.id, prompt=None, task=task.model_dump(mode="json"))
                yield OurTask(data, self.config.task)

    class OurEnv(vf.SingleAgentEnv):  # type: ignore[misc]
        """Our episode is the user."""

        async def start(self) -> None:
            await ours.open()

        async def stop(self) -> None:
            await ours.environment.close()

        async def run(self, task: Any, agents: Any) -> None:
            mine = Task.model_validate(task.data.task)
            async with agents.agent.interaction(task) as talk:

                async def ask(messages: Sequence[Message], first: bool) -> str | None:
                    segment = await talk.turn([wire(message) for message in messages])
                    return None if segment.terminated else str(segment.last_reply)

                rollout = await ours.play(mine, ask)
            if talk.trace.errors:  # a server that failed is no reply that earned nothing
                return
            for reward, value in rollout.rewards.items():
                talk.trace.record_reward(reward, value, ours.weights.get(reward, 1.0))
            for metric, value in rollout.metrics.items():
                talk.trace.record_metric(metric, value)

    OurTaskset.INFINITE = getattr(ours.environment.tasks(split), "length", 0) is None
    return OurTaskset, OurEnv
