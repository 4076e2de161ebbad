"""The reward pool with rewards that hang, crash, fork, trick alarms: one rollout fails, the others are scored."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.messages import assistant, user
from atropos_cli.domain.rollout import Rollout, RolloutFailure
from atropos_cli.domain.task import Task
from atropos_cli.errors import PluginError
from atropos_cli.rollout.workers import PoolOptions, RewardSet, ScorePool

REWARDS = '''
import asyncio, os, signal, subprocess, sys, threading, time
from atropos_cli.sdk import reward, group_reward

@reward
def exact(task, rollout):
    return float(rollout.text == task.answer)

@reward(weight=0.5)
async def slow_length(task, rollout):
    await asyncio.sleep(0.001)
    return len(rollout.text)

@reward
def act(task, rollout):
    """Does what the reply says."""
    text = rollout.text
    if text == "hang":
        while True:
            time.sleep(1)
    if text == "block":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            pass
    if text == "exit":
        os._exit(3)
    if text == "sysexit":
        sys.exit("bye")
    if text == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if text == "raise":
        raise KeyError("moves")
    if text == "base":
        class Stop(BaseException):
            pass
        raise Stop("out of time")
    if text == "none":
        return None
    if text == "nan":
        return float("nan")
    if text == "alarm":
        def expired(number, frame):
            raise TimeoutError("alarm")
        signal.signal(signal.SIGALRM, expired)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        time.sleep(5)
    if text == "leave alarm":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        return 1.0
    if text == "late exit":
        threading.Timer(0.05, lambda: os._exit(9)).start()
        return 1.0
    if text == "wait":
        time.sleep(0.2)
    if text == "memory":
        return float(len(bytearray(3 * 1024**3)))
    if text == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open("child.pid", "w") as file:
            file.write(str(child.pid))
        os._exit(4)
    if text == "fork":
        if os.fork() == 0:
            time.sleep(600)
        os._exit(5)
    if text == "print":
        for _ in range(1000):
            print("x" * 1000)
        return 1.0
    return 1.0

@group_reward
def rank(task, rollouts):
    return [float(i) for i in range(len(rollouts))]

@group_reward
def short(task, rollouts):
    return [1.0]

@group_reward
async def hanging_group(task, rollouts):
    await asyncio.sleep(600)
'''

TASK = Task(id="t", prompt=(user("p"),), answer="a")


@pytest.fixture(autouse=True)
def _rewards(isolation: Path) -> None:
    (isolation / "r.py").write_text(REWARDS)


def rollout(text: str, number: int = 0, **more: Any) -> Rollout:
    return Rollout(id=f"g/{number}", task_id="t", messages=(user("p"), assistant(text)), **more)


async def scored(texts: Sequence[str], *names: str, **options: Any) -> tuple[Rollout, ...]:
    options.setdefault("workers", 1)
    options.setdefault("deadline", 5.0)
    rewards = RewardSet(tuple((f"./r.py:{name}", None) for name in names))
    async with ScorePool(rewards, PoolOptions(**options)) as pool:
        return await pool.score(TASK, [rollout(text, i) for i, text in enumerate(texts)])


def failure(found: Rollout) -> tuple[str, str]:
    assert found.failure is not None
    assert found.reward is None
    assert found.failure.stage == "score"
    return found.failure.type, found.failure.message


async def test_sync_async_and_group_rewards_with_weights() -> None:
    a, b = await scored(["a", "bb"], "exact", "slow_length", "rank")
    assert a.rewards == {"exact": 1.0, "slow_length": 1.0, "rank": 0.0}
    assert a.reward == 1.5
    assert b.rewards == {"exact": 0.0, "slow_length": 2.0, "rank": 1.0}
    assert b.reward == 2.0


@pytest.mark.parametrize(
    ("text", "type", "message"),
    [
        ("exit", "WorkerDied", "its process ended with exit code 3"),
        ("crash", "WorkerDied", "its process was killed by SIGSEGV"),
        ("child", "WorkerDied", "exit code 4"),
        ("fork", "WorkerDied", "exit code 5"),
        ("sysexit", "SystemExit", "bye"),
        ("raise", "KeyError", "moves"),
        ("base", "Stop", "out of time"),
        ("none", "ValueError", "returned None"),
        ("nan", "ValueError", "not a finite number"),
        ("alarm", "TimeoutError", "alarm"),
    ],
)
async def test_one_bad_rollout_costs_itself_only(text: str, type: str, message: str) -> None:
    first, bad, last = await scored(["x", text, "y"], "act")
    assert (first.reward, last.reward) == (1.0, 1.0)
    found = failure(bad)
    assert found[0] == type
    assert message in found[1]


@pytest.mark.parametrize("text", ["hang", "block"])
async def test_a_hang_ends_at_the_deadline(text: str) -> None:
    started = time.monotonic()
    bad, good = await scored([text, "y"], "act", deadline=0.7)
    assert failure(bad) == ("Timeout", "the reward did not answer within 0.7 s")
    assert good.reward == 1.0
    assert time.monotonic() - started < 20


async def test_the_reward_that_hangs_is_named() -> None:
    (bad,) = await scored(["hang"], "exact", "act", deadline=0.7)
    assert failure(bad)[1] == "reward act did not answer within 0.7 s"


async def test_memory_limit() -> None:
    bad, good = await scored(["memory", "y"], "act", memory_mb=500)
    assert failure(bad)[0] == "MemoryError"
    assert good.reward == 1.0


async def test_children_are_killed_with_their_worker() -> None:
    await scored(["child"], "act")
    await _gone(_number("child.pid"))


def _number(name: str) -> int:
    return int(Path(name).read_text())


async def _gone(pid: int) -> None:
    for _ in range(100):
        if not _running(pid):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"process {pid} still runs")


def _running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


async def test_what_a_reward_leaves_behind_does_not_hit_the_next_rollout() -> None:
    found = await scored(["leave alarm", "wait", "late exit", "wait", "wait"], "act")
    assert [item.reward for item in found] == [1.0] * 5


async def test_what_rewards_print_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    (found,) = await scored(["print"], "act")
    assert found.reward == 1.0
    assert capfd.readouterr().out == ""


async def test_failed_rollouts_stay_as_they_are() -> None:
    failed = rollout("a", failure=RolloutFailure(stage="generate", type="Boom", message="no"))
    async with ScorePool(RewardSet((("./r.py:exact", None), ("./r.py:rank", 2.0)))) as pool:
        first, second = await pool.score(TASK, [failed, rollout("a", 1)])
    assert first == failed
    assert second.rewards == {"exact": 1.0, "rank": 0.0}


async def test_group_rewards_that_fail() -> None:
    for found in await scored(["a", "b"], "exact", "short"):
        assert failure(found)[0] == "WrongCount"
        assert "1 values for 2 rollouts" in failure(found)[1]
        assert "exact" in found.rewards
    for found in await scored(["a", "b"], "hanging_group", deadline=0.5):
        assert "of the whole group) did not answer" in failure(found)[1]


def _change(code: str) -> None:
    Path("r.py").write_text(code)


async def test_rewards_that_cannot_be_loaded() -> None:
    with pytest.raises(PluginError, match=r"r\.py has no 'nothing'"):
        await scored(["a"], "nothing")
    _change("import no_such_module\n")
    with pytest.raises(PluginError, match="no_such_module"):
        await scored(["a"], "exact")


async def test_scorers_carry_name_version_and_code() -> None:
    async with ScorePool(RewardSet((("exact_match", 2.0), ("./r.py:exact", None)))) as pool:
        builtin, own = pool.scorers
        assert (builtin["name"], builtin["weight"], builtin["dist"]) == ("exact_match", 2.0, "atropos-cli")
        assert own["version"].startswith("sha256-")
        before = own["code"]
    _change(REWARDS + "\n# changed\n")
    async with ScorePool(RewardSet((("./r.py:exact", None),))) as pool:
        assert pool.scorers[0]["code"] != before


async def test_many_groups_at_once_and_no_zombies() -> None:
    texts = ["a", "b", "exit", "a"]
    rewards = RewardSet((("./r.py:exact", None), ("./r.py:act", None)))
    async with ScorePool(rewards, PoolOptions(workers=2, deadline=10)) as pool:
        groups = [pool.score(TASK, [rollout(text, i) for i, text in enumerate(texts)]) for _ in range(6)]
        results = await asyncio.gather(*groups)
        assert len(pool._pool._all) <= 2
    for found in results:
        assert [item.reward for item in found] == [2.0, 1.0, None, 2.0]
    assert all(_running(int(pid)) for pid in _children())


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


async def test_cancelling_kills_the_worker_in_the_middle_of_a_reward() -> None:
    async with ScorePool(RewardSet((("./r.py:act", None),)), PoolOptions(workers=1, deadline=60)) as pool:
        task = asyncio.create_task(pool.score(TASK, [rollout("hang")]))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (found,) = await pool.score(TASK, [rollout("y")])
        assert found.reward == 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux")
def test_workers_die_with_a_killed_parent() -> None:
    code = """
import asyncio, sys
from atropos_cli.rollout.workers import *
from atropos_cli.domain.task import Task
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.messages import assistant
async def main():
    async with ScorePool(RewardSet((("./r.py:act", None),)), PoolOptions(workers=1, deadline=60)) as pool:
        (worker,) = pool._pool._all
        print(worker.pid, flush=True)
        await pool.score(Task(id="t"), [Rollout(id="r", task_id="t", messages=(assistant("hang"),))])
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    for _ in range(200):
        if not _running(pid):
            break
        time.sleep(0.02)
    assert not _running(pid)
