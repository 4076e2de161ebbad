"""States put aside and taken up again, against the same commands played from the start."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_textworld.engine.observation import Observation
from atropos_textworld.engine.runtime import Runtime
from atropos_textworld.engine.session import GameSession, Library, UnsafeCommand
from atropos_textworld.games.spec import GameSpec

from atropos_cli.sdk import Task

pytestmark = pytest.mark.filterwarnings("ignore:Game .* is not fully supported")

KINDS = [
    ("quest-fetch", "easy"),
    ("puzzle-combination-lock", "medium"),
    ("tw-cooking", "medium"),
    ("tw-simple", "easy"),
]


async def path_and_plan(runtime: Runtime, kind: str, difficulty: str) -> tuple[Path, tuple[str, ...]]:
    record = await runtime.pool.get(GameSpec(kind, difficulty, 7, "train"))
    return runtime.pool.cache.game_path(record.key), record.plan


def replayed(path: Path, commands: list[str]) -> Observation:
    """The same commands in an interpreter of their own."""
    session = GameSession(Library(), path)
    for command in commands:
        session.step(command)
    session.close()
    return session.last


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("kind", "difficulty"), KINDS)
async def test_peeking_is_playing_from_the_start(runtime: Runtime, kind: str, difficulty: str) -> None:
    """Along the plan and off it: what peek tells is what a replay gives, and the game stays where it was."""
    path, plan = await path_and_plan(runtime, kind, difficulty)
    rng = random.Random(kind)
    session = GameSession(Library(), path)
    done: list[str] = []
    for planned in plan:
        tried = [planned, *rng.sample(session.last.commands, min(3, len(session.last.commands))), "xyzzy"]
        before = session.last
        calls: list[int] = []
        seen = session.peek(tried, lambda: calls.append(1))  # noqa: B023
        assert session.last == before
        assert len(calls) == len(tried)
        assert seen == [replayed(path, [*done, command]) for command in tried]
        session.step(planned)
        done.append(planned)
        assert session.last == seen[0]
    assert session.last.won
    assert session.peek(["look"]) == [session.last]
    session.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("kind", "difficulty"), KINDS)
async def test_rollouts_that_share_an_interpreter_do_not_mix(runtime: Runtime, kind: str, difficulty: str) -> None:
    path, plan = await path_and_plan(runtime, kind, difficulty)
    rng = random.Random(difficulty)
    library = Library()
    sessions = [GameSession(library, path) for _ in range(4)]
    assert len(library._playing) == 1
    logs: list[list[str]] = [[] for _ in sessions]
    for _ in range(12 * len(sessions)):
        which = rng.randrange(len(sessions))
        session = sessions[which]
        if session.last.done:
            continue
        on_plan = which == 0 and len(logs[0]) < len(plan)
        command = plan[len(logs[0])] if on_plan else rng.choice(session.last.commands)
        session.step(command)
        logs[which].append(command)
        if rng.random() < 0.3:
            session.peek([rng.choice(session.last.commands or ("look",))])
    late = GameSession(library, path)
    assert late.last == replayed(path, [])
    for session, log in zip(sessions, logs, strict=True):
        assert session.last == replayed(path, log)
        assert session.step("look") == replayed(path, [*log, "look"])
    for session in (*sessions, late):
        session.close()
    assert not library._playing


@pytest.mark.asyncio(loop_scope="module")
async def test_an_rollout_outlives_those_it_shared_with(runtime: Runtime) -> None:
    path, plan = await path_and_plan(runtime, "quest-fetch", "easy")
    library = Library()
    first, second = GameSession(library, path), GameSession(library, path)
    first.step(plan[0])
    second.step("look")
    second.close()
    assert first.step(plan[1]) == replayed(path, list(plan[:2]))
    with pytest.raises(UnsafeCommand):
        first.peek(["look", "look\x00"])
    first.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_group_is_played_in_one_process(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    seats = environment._runtime.fleet._seats
    episodes = [environment.episode(make_task("quest-fetch", seed=seed)) for seed in (7, 7, 7, 0, 0)]
    await asyncio.gather(*(episode.reset() for episode in episodes))
    hosts = [episode.game.session._seat for episode in episodes]
    assert hosts[0] is hosts[1] is hosts[2]
    assert hosts[3] is hosts[4]
    assert hosts[0] is not hosts[3]
    for episode in episodes:
        await episode.close()
    assert all(not seat.games and seat.sessions == 0 for seat in seats)


async def test_peeking_survives_the_death_of_the_process(opened: Any, make_task: Callable[..., Task]) -> None:
    environment = await opened(workers=1)
    record, session = await environment._play(GameSpec.from_json(make_task("quest-fetch").info))
    await session.step(record.plan[0])
    seen = await session.peek([record.plan[1], "look"])
    os.kill(environment._runtime.fleet.pids()[0], signal.SIGKILL)
    assert await session.peek([record.plan[1], "look"]) == seen
    assert await session.step(record.plan[1]) == seen[0]
    assert await session.peek([]) == []
    await session.close()
