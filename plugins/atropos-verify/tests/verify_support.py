"""Shared by the tests of atropos-verify: small tasks and rollouts."""

from __future__ import annotations

import inspect
from typing import Any

from atropos_cli.sdk import Reward, Rollout, Task, Usage, assistant


def make_task(answer: Any = None, **info: Any) -> Task:
    return Task(id="t", answer=answer, info=info)


def make_rollout(text: str | None, *, tokens: int | None = None, reasoning: str | None = None) -> Rollout:
    message = assistant(text or "").model_copy(update={"content": text, "reasoning": reasoning})
    return Rollout(id="r", task_id="t", messages=(message,), usage=Usage(completion_tokens=tokens))


async def value(reward: Reward, answer: Any, text: str | None, **more: Any) -> float:
    """What the engine would get: the reward's value for one reply."""
    tokens = more.pop("tokens", None)
    result = reward(make_task(answer, **more), make_rollout(text, tokens=tokens))
    return float(await result if inspect.isawaitable(result) else result)
