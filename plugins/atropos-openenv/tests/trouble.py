"""An environment that does what the reply says: raise, leave, hang, or fail when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from atropos_cli.sdk import Environment, Episode, Message, Rollout, Task, TaskStream, reward, user


class TroubleEpisode(Episode):
    """One reply, which is what it does."""

    said = ""

    def reset(self) -> Sequence[Message]:
        return [user("What shall I do?")]

    async def step(self, reply: Message) -> None:
        self.said = reply.text
        if self.said == "raise":
            raise RuntimeError("the step broke")
        if self.said == "leave":
            raise SystemExit(3)
        if self.said == "hang":
            await asyncio.Event().wait()

    def result(self) -> dict[str, Any]:
        return {"said": self.said}

    def close(self) -> None:
        if self.said == "fail when closed":
            raise RuntimeError("close() broke")


@reward
def length(task: Task, rollout: Rollout) -> float:
    """How long the reply is."""
    return float(len(str(rollout.info["said"])))


class Trouble(Environment):
    """See the module."""

    name = "trouble"
    rewards = (length,)

    def tasks(self, split: str) -> TaskStream:
        return TaskStream(lambda index: Task(id=f"trouble-{index}"))

    def episode(self, task: Task) -> Episode:
        return TroubleEpisode()
