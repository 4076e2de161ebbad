"""Rewards that do not end: each is one failed rollout at the group's deadline, and the others are scored."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support import Adding, Bench

from atropos_cli.rollout.loopthread import LoopThread
from atropos_cli.rollout.scoring import Scorer
from atropos_cli.rollout.stopping import RewardTimeout
from atropos_cli.sdk import Reward, Rollout, Task, group_reward, user

ROLLOUT = Rollout(id="r", task_id="t", messages=(user("?"),))
TASK = Task(id="t", prompt=(user("?"),))


def loops(task: Task, rollout: Rollout) -> float:
    while True:
        pass


def sleeps(task: Task, rollout: Rollout) -> float:
    time.sleep(3600)
    return 1.0


def matches(task: Task, rollout: Rollout) -> float:
    return float(re.match(r"(a+)+$", "a" * 40 + "b") is not None)


def waits_for_a_program(task: Task, rollout: Rollout) -> float:
    return float(subprocess.run(["sleep", "3600"], check=False).returncode)


def catches_all(task: Task, rollout: Rollout) -> float:
    try:
        time.sleep(3600)
    except Exception:
        return 0.0
    return 1.0


async def sleeps_async(task: Task, rollout: Rollout) -> float:
    await asyncio.sleep(3600)
    return 1.0


async def stubborn(task: Task, rollout: Rollout) -> float:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


SYNC = (loops, sleeps, matches, waits_for_a_program, catches_all)
HANGING = (*SYNC, sleeps_async, stubborn)


def use(bench: Bench, *rewards: Reward) -> None:
    bench.use(type("Hanging", (Adding,), {"name": "hanging", "rewards": rewards}))


def only_first(hang: Callable[[Task, Rollout], Any]) -> Reward:
    """The function for the first rollout of each group, 1.0 for the others."""
    if asyncio.iscoroutinefunction(hang):

        async def first(task: Task, rollout: Rollout) -> float:
            return await hang(task, rollout) if rollout.id.endswith("/0") else 1.0

        return Reward(first, name="first")
    return Reward(lambda task, one: hang(task, one) if one.id.endswith("/0") else 1.0, name="first")


@pytest.mark.parametrize("hang", HANGING, ids=lambda hang: hang.__name__)
def test_it_fails_at_the_deadline_and_the_others_are_scored(bench: Bench, hang: Callable[..., Any]) -> None:
    use(bench, only_first(hang))
    began = time.monotonic()
    summary = bench.run(bench.plan(limit=2, execution={"group_timeout": 1.0, "max_failure_rate": 1.0}))
    assert time.monotonic() - began < 12
    assert (summary.state, summary.rollouts, summary.rollouts_failed) == ("finished", 4, 2)
    assert summary.failures == {"score:RewardTimeout": 2}
    for group in bench.groups():
        first, second = group["rollouts"]
        assert (first.get("reward"), second["reward"]) == (None, 1.0)
        assert "reward first: it was not done when the group's time was over" in first["failure"]["message"]


def test_a_group_that_was_written_is_not_scored_again_by_resume(bench: Bench) -> None:
    calls: list[str] = []

    def counted(task: Task, rollout: Rollout) -> float:
        calls.append(rollout.id)
        return sleeps(task, rollout) if rollout.id.endswith("/0") else 1.0

    use(bench, Reward(counted))
    execution = {"group_timeout": 0.5, "max_failure_rate": 1.0}
    bench.run(bench.plan(limit=1, execution=execution))
    summary = bench.run(bench.plan(limit=2, execution=execution), resume=True)
    assert len(calls) == len(set(calls)) == 4
    assert (summary.rollouts, summary.failures) == (4, {"score:RewardTimeout": 2})


def test_a_group_reward_that_hangs_fails_the_whole_group(bench: Bench) -> None:
    @group_reward
    def together(task: Task, rollouts: Any) -> list[float]:
        return [sleeps(task, one) for one in rollouts]

    use(bench, together)
    summary = bench.run(bench.plan(limit=1, execution={"group_timeout": 0.5}))
    assert summary.failures == {"score:RewardTimeout": 2}
    assert [failure["type"] for failure in bench.failures()] == ["RewardTimeout"] * 2


def test_the_loop_goes_on_while_a_reward_blocks() -> None:
    ticks: list[float] = []
    during: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    def blocking(task: Task, rollout: Rollout) -> float:
        before = len(ticks)
        time.sleep(0.3)
        during.append(len(ticks) - before)
        return 1.0

    async def work() -> tuple[Rollout, ...]:
        ticking = asyncio.ensure_future(tick())
        scored = await Scorer([Reward(blocking)]).score(TASK, [ROLLOUT], 5.0)
        ticking.cancel()
        return scored

    loop = LoopThread()
    try:
        (scored,) = loop.call(work())
    finally:
        loop.close()
    assert scored.reward == 1.0
    assert during[0] >= 10


def test_rewards_run_in_the_main_thread(bench: Bench) -> None:
    def where(task: Task, rollout: Rollout) -> float:
        return float(threading.current_thread() is threading.main_thread())

    use(bench, Reward(where))
    bench.run(bench.plan(limit=1))
    assert [one["reward"] for one in bench.groups()[0]["rollouts"]] == [1.0, 1.0]


@pytest.mark.parametrize("hang", [loops, sleeps, matches], ids=lambda hang: hang.__name__)
def test_cancelled_work_breaks_off_the_call(hang: Callable[..., Any]) -> None:
    async def work() -> str:
        scoring = asyncio.ensure_future(Scorer([Reward(hang)]).score(TASK, [ROLLOUT], 2.0))
        await asyncio.sleep(0.3)
        scoring.cancel()
        await asyncio.wait([scoring])
        # The main thread is free for the next call.
        (result,), _ = await LoopThread.here().in_caller([lambda: "free"], 1.0)  # type: ignore[union-attr]
        return str(result)

    loop = LoopThread()
    try:
        assert loop.call(work()) == "free"
    finally:
        loop.close()


def test_in_another_thread_a_call_runs_and_is_not_broken_off() -> None:
    found: list[Any] = []

    async def work() -> Any:
        loop = LoopThread.here()
        assert loop is not None
        return await loop.in_caller([lambda: time.sleep(0.6) or "done"], 0.1)

    def run() -> None:
        loop = LoopThread()
        found.append(loop.call(work()))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert found[0][0] == ["done"]


def test_a_late_value_is_an_error_with_the_place_where_it_hung() -> None:
    async def work() -> Any:
        loop = LoopThread.here()
        assert loop is not None
        return await loop.in_caller([lambda: sleeps(TASK, ROLLOUT)], 0.2)

    loop = LoopThread()
    try:
        (error,), used = loop.call(work())
    finally:
        loop.close()
    assert isinstance(error, RewardTimeout)
    assert 0.2 <= used < 2
    names = []
    trace = error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "sleeps" in names


def test_a_call_that_no_signal_reaches_ends_the_program(tmp_path: Any) -> None:
    """It waits in C for a lock, and no signal makes that return."""
    program = """
import ctypes
from atropos_cli.rollout import loopthread
loopthread.STUCK_S = 1.0
def hang():
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
async def work():
    return await loopthread.LoopThread.here().in_caller([hang], 0.2)
loopthread.LoopThread().call(work())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "no signal reached it" in done.stderr
