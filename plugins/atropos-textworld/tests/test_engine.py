"""Processes that die or hang, and what is left behind when things end badly."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from atropos_textworld.engine.errors import EngineError
from atropos_textworld.engine.process import CallFailed, GameProcess
from atropos_textworld.engine.runfolder import RunFolder
from atropos_textworld.games.spec import GameSpec

from atropos_cli.sdk import Task, assistant
from atropos_cli.sdk.isolation import WorkerCrashed, WorkerTimeout


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def soon(seconds: float = 10.0) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Wait for something to become true."""

    def wait(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.02)

    yield wait


async def test_games_go_on_when_their_process_is_killed(opened: Any, make_task: Callable[..., Task]) -> None:
    environment = await opened(workers=1)
    task = make_task("quest-fetch", "medium")
    plan = (await environment._runtime.pool.get(GameSpec.from_json(task.info))).plan
    undisturbed = environment.episode(task)
    expected = [(await undisturbed.reset())[1].text] + [
        (await undisturbed.step(assistant(c)))[0].text for c in plan[:-1]
    ]
    episodes = [environment.episode(task) for _ in range(3)]
    seen = [[(await episode.reset())[1].text] for episode in episodes]
    for turn, command in enumerate(plan[:-1]):
        if turn in (1, 4):
            os.kill(environment._runtime.fleet.pids()[0], signal.SIGKILL)
        for texts, episode in zip(seen, episodes, strict=True):
            texts.append((await episode.step(assistant(command)))[0].text)
    assert seen == [expected] * 3
    for episode in (*episodes, undisturbed):
        assert await episode.step(assistant(plan[-1])) is None
        assert episode.result()["won"]
        await episode.close()


async def test_only_the_game_that_kills_its_process_fails(opened: Any, make_task: Callable[..., Task]) -> None:
    """Two games are being asked when the process dies; the one with which it dies again is the culprit."""
    environment = await opened(workers=1)
    task = make_task("quest-fetch")
    culprit, neighbour = environment.episode(task), environment.episode(task)
    await culprit.reset()
    await neighbour.reset()
    seat = environment._runtime.fleet._seats[0]
    start = seat.running

    async def deadly() -> GameProcess:
        process: GameProcess = await start()
        if culprit.game.session._deaths and asyncio.current_task() is turns[0]:
            os.kill(process.pid, signal.SIGKILL)
        return process

    seat.running = deadly
    os.kill(seat.process.pid, signal.SIGSTOP)
    turns = [asyncio.create_task(e.step(assistant("look"))) for e in (culprit, neighbour)]
    await asyncio.sleep(0.1)
    os.kill(seat.process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"died twice on command 'look'.*SIGKILL"):
        await turns[0]
    assert "-=" in (await turns[1])[0].text
    await culprit.close()
    await neighbour.close()


async def test_only_the_game_that_hangs_fails(opened: Any, make_task: Callable[..., Task]) -> None:
    environment = await opened(workers=1, step_timeout=1.0)
    task = make_task("quest-fetch")
    hanging, neighbour = environment.episode(task), environment.episode(task)
    await hanging.reset()
    await neighbour.reset()
    await neighbour.step(assistant("look"))
    (pid,) = environment._runtime.fleet.pids()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(EngineError, match="the game hung on command 'look': no answer to 'step' in 1 s"):
        await hanging.step(assistant("look"))
    assert not alive(pid)
    assert "-=" in (await neighbour.step(assistant("look")))[0].text
    assert environment._runtime.fleet.pids() != [pid]
    await hanging.close()
    await neighbour.close()


async def test_a_builder_that_dies_is_replaced(opened: Any, make_task: Callable[..., Task]) -> None:
    environment = await opened(workers=1)
    pool = environment._runtime.pool
    first = GameSpec.from_json(make_task("quest-fetch", seed=1001).info)
    await pool.get(first)
    os.kill(pool.processes.pids()[0], signal.SIGKILL)
    record = await pool.get(GameSpec.from_json(make_task("quest-fetch", seed=1002).info))
    assert pool.cache.game_path(record.key).exists()


async def test_a_game_that_cannot_be_made_fails_with_the_reason(opened: Any) -> None:
    environment = await opened(workers=1)
    spec = GameSpec("quest-nonsense", "easy", 1)
    for _ in range(2):
        with pytest.raises(EngineError, match="quest-nonsense-easy-1 cannot be made: GameError: no kind of game"):
            await environment._play(spec)


async def test_a_game_removed_from_the_cache_is_made_again(opened: Any, make_task: Callable[..., Task]) -> None:
    environment = await opened(workers=1)
    spec = GameSpec.from_json(make_task("quest-fetch").info)
    record = await environment._runtime.pool.get(spec)
    environment._runtime.pool.cache.game_path(record.key).unlink()
    again, session = await environment._play(spec)
    assert again.key == record.key
    await session.close()


async def test_a_process_says_how_it_failed(tmp_path: Path) -> None:
    process = await GameProcess.begin("play", tmp_path / "run")
    with pytest.raises(CallFailed, match="nowhere") as failed:
        await process.ask("open", 60.0, session="s", path="nowhere.z8", commands=[])
    assert failed.value.type == "FileNotFoundError"
    with pytest.raises(CallFailed):
        await process.ask("explode", 5.0)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerTimeout, match=r"no answer to 'close' in 0\.2 s"):
        await process.ask("close", 0.2, session="s")
    waiting = asyncio.create_task(process.ask("close", 60.0, session="s"))
    await asyncio.sleep(0)
    await process.kill()
    with pytest.raises(WorkerCrashed) as died:
        await waiting
    assert died.value.killed
    assert not alive(process.pid)


async def test_closing_leaves_nothing(opened: Any, make_task: Callable[..., Task], temporary_folders: Path) -> None:
    environment = await opened(workers=2)
    episode = environment.episode(make_task("quest-fetch", seed=77))
    await episode.reset()
    pids = [*environment._runtime.fleet.pids(), environment._runtime.pool.processes.pids()[0]]
    assert all(map(alive, pids))
    assert os.listdir(temporary_folders)
    await episode.close()
    await environment.close()
    assert not any(map(alive, pids))
    assert not os.listdir(temporary_folders)


async def test_what_a_killed_run_left_is_removed_by_the_next(opened: Any, temporary_folders: Path) -> None:
    """When parent and workers are killed at once, nobody is left to clean up."""
    running = await opened()
    left, other = RunFolder(), RunFolder()
    (left.path / "play-x").mkdir()
    left.remove.detach()
    os.close(left._lock)
    unfinished, foreign = temporary_folders / "atropos-textworld-new", temporary_folders / "something-else"
    unfinished.mkdir()
    foreign.mkdir()
    following = await opened()
    assert not left.path.exists()
    for kept in (running._runtime.folder.path, following._runtime.folder.path, other.path, unfinished, foreign):
        assert kept.exists()
    other.remove()


PROGRAM = """
import asyncio, os, sys
from atropos_textworld.environment import TextWorldEnvironment as E
async def main():
    environment = E(E.Config(game_type='quest-fetch', difficulty='easy'))
    await environment.open(workers=2)
    tasks = environment.tasks("train")
    first = environment.episode(tasks[0])
    await first.reset()
    second = environment.episode(tasks[200])
    await asyncio.sleep(0.2)
    print(*environment._runtime.fleet.pids(), *environment._runtime.pool.processes.pids(), flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(how: signal.Signals, temporary_folders: Path) -> None:
    """While playing and building, however the parent goes; and they take their files along."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 3
    assert all(map(alive, pids))
    parent.send_signal(how)
    parent.wait()
    with soon() as wait:
        wait(lambda: not any(map(alive, pids)))
        wait(lambda: not os.listdir(temporary_folders))
