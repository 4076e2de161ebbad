"""Sums for verifiers from 0.4: one turn, a scripted user, tools, or two players; and what can go wrong."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf


class AddToolset(vf.Toolset[vf.SharedToolsetConfig]):
    """One tool."""

    TOOL_PREFIX = "sums"

    @vf.tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class SumData(vf.TaskData):
    answer: str
    trouble: str = ""
    once: str = ""


def trouble(data: SumData) -> None:
    """What the task is to do to its process."""
    if not data.trouble or (data.once and Path(data.once).exists()):
        return
    if data.once:
        Path(data.once).touch()
    print("not data", flush=True)
    if data.trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if data.trouble == "exit":
        os._exit(3)
    if data.trouble == "raise":
        raise ValueError("this task raises")
    time.sleep(3600)


class SumTask(vf.Task[SumData]):
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        trouble(self.data)

    @vf.reward(weight=2.0)
    async def right(self, trace: vf.Trace) -> float:
        """Is the answer the last word?"""
        words = trace.last_reply.split()
        return float(bool(words) and words[-1].strip(".") == self.data.answer)

    @vf.metric
    async def brief(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 20)


class SumConfig(vf.TasksetConfig):
    size: int = 6
    """How many sums."""
    kind: Literal["once", "tools", "twice", "two"] = "once"
    trouble_at: int = -1
    trouble: str = ""
    once: str = ""


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    @classmethod
    def toolsets(cls, config: SumConfig) -> list[Any]:
        return [AddToolset(vf.SharedToolsetConfig())] if config.kind == "tools" else []

    def load(self) -> Iterator[SumTask]:
        for n in range(self.config.size):
            trouble = self.config.trouble if n == self.config.trouble_at else ""
            data = SumData(idx=n, prompt=f"{n} + 1?", answer=str(n + 1), trouble=trouble, once=self.config.once)
            yield SumTask(data, self.config.task)


class SumEnvConfig(vf.EnvConfig):
    first: vf.AgentConfig = vf.AgentConfig()
    second: vf.AgentConfig = vf.AgentConfig()
    ask: str = "Are you sure?"


class SumEnv(vf.Env[SumEnvConfig]):
    """The first player alone, asked back, or both."""

    async def run(self, task: Any, agents: Any) -> None:
        kind = self.taskset.config.kind
        if kind == "twice":
            async with agents.first.interaction(task) as talk:
                await talk.turn()
                await talk.turn(self.config.ask)
            return
        await agents.first.run(task)
        if kind == "two":
            await agents.second.run(task)


__all__ = ["SumEnv", "SumTaskset"]


if __name__ == "__main__":
    AddToolset.run()
