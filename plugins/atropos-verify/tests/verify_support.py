"""Shared by the tests of atropos-verify: small tasks and rollouts, and the shared data beside the repository."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.sdk import Reward, Rollout, Task, Usage, assistant

SHARED = Path(__file__).resolve().parents[4] / "shared"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a shared file; empty when it is not here."""
    path = SHARED / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def shared_rows(name: str, keep: Callable[[dict[str, Any]], bool] = bool) -> list[Any]:
    """Parameters for one test a row; one skipped test with the reason when the file is not here."""
    found = [pytest.param(row, id=str(row.get("id"))) for row in rows(name) if keep(row)]
    reason = pytest.mark.skip(reason=f"../shared/{name} is not beside the repository")
    return found or [pytest.param({}, marks=reason, id="absent")]


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
