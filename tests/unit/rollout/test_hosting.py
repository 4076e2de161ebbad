"""Episodes that another program plays, of an environment that raises, leaves and fails to close."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.messages import assistant
from atropos_cli.errors import DataError
from atropos_cli.rollout.hosting import Hosted
from atropos_cli.sdk.authoring import load_registry

CODE = """
import asyncio
from atropos_cli.sdk import Environment, Episode, Task, TaskStream, reward, user

class Trouble(Episode):
    said = ""
    def reset(self):
        return [user("go")]
    def step(self, reply):
        self.said += reply.text
        if reply.text == "raise":
            raise ValueError("the step broke")
        if reply.text == "leave":
            raise SystemExit(3)
        if reply.text == "cancel":
            raise asyncio.CancelledError
        if reply.text == "panic":
            raise type("Panic", (BaseException,), {})("of compiled code")
        return None if reply.text == "end" else [user("more")]
    def result(self):
        return {"said": self.said}
    def close(self):
        raise RuntimeError("close() broke")

@reward
def length(task, rollout):
    return float(len(rollout.info["said"]))

class Env(Environment):
    name = "trouble"
    rewards = (length,)
    def tasks(self, split):
        return TaskStream(lambda index: Task(id=f"t{index}"))
    def episode(self, task):
        return Trouble()
"""


@pytest.fixture
def host(tmp_path: Path) -> Hosted:
    file = tmp_path / "trouble.py"
    file.write_text(CODE)
    return Hosted(f"{file}:Env", {}, load_registry())


def play(host: Hosted, replies: Sequence[str]) -> list[Any]:
    """What each step and the score gave: messages, a reward, or an exception."""

    async def played() -> list[Any]:
        episode = host.episode(host.task(0))
        found: list[Any] = [await episode.reset()]
        for reply in replies:
            found.append(await caught(episode.step(assistant(reply))))
        scored = await caught(episode.score())
        await episode.close()
        return [*found[1:], scored if isinstance(scored, Exception) else scored.reward]

    async def caught(waiting: Any) -> Any:
        try:
            return await waiting
        except Exception as error:
            return error

    return asyncio.run(played())


def test_a_failure_to_close_takes_no_reward_away(host: Hosted) -> None:
    *_, reward = play(host, ["ab", "end"])
    assert reward == 5.0


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("raise", "ValueError: the step broke"),
        ("leave", "sys.exit(3)"),
        ("cancel", "it was cancelled"),
        ("panic", "Panic: of compiled code"),
    ],
)
def test_an_episode_whose_step_failed_goes_no_further_and_has_no_reward(host: Hosted, reply: str, error: str) -> None:
    first, second, reward = play(host, [reply, "end"])
    assert isinstance(first, ValueError | RuntimeError)
    for later in (second, reward):
        assert isinstance(later, DataError)
        assert error in later.message
