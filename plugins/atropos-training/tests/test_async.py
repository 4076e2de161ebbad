"""The parts of an asynchronous training: tasks started and taken, the steps' file, what is too old."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from atropos_training.ahead import Ahead
from atropos_training.idling import Idling
from atropos_training.keptgroups import KeptGroups
from atropos_training.staleness import ages, without_old
from atropos_training.steporder import FILE, StepOrder, StepTasks

from atropos_cli.sdk import DataError, Message, Rollout, ScoredGroup, Task, TokenSpan, user
from atropos_cli.sdk.engine import LoopThread


def group(place: int, versions: Sequence[int | None], *, logprobs: bool = True) -> ScoredGroup:
    members = tuple(
        Rollout(
            id=f"{place}/{number}",
            task_id=f"t{place}",
            reward=1.0,
            messages=(
                Message(role="user", content="x", tokens=TokenSpan(ids=(1, 2), mask=False)),
                Message(
                    role="assistant",
                    content="y",
                    tokens=TokenSpan(
                        ids=(3, 4), mask=True, logprobs=(-1.0, -1.0) if logprobs else None, version=version
                    ),
                ),
            ),
        )
        for number, version in enumerate(versions)
    )
    task = Task(id=f"t{place}", prompt=(user("x"),))
    return ScoredGroup(group_id=f"ab-{place}.0", env="e", task=task, rollouts=members, model="m")


async def test_tasks_are_taken_as_they_come_out() -> None:
    gates = {place: asyncio.Event() for place in range(4)}
    begun: list[int] = []

    async def play(place: int) -> list[ScoredGroup]:
        begun.append(place)
        await gates[place].wait()
        return [group(place, [0])]

    ahead = Ahead(play, iter(range(4)), slots=2)
    ahead.allow(3)
    await asyncio.sleep(0)
    assert begun == [0, 1]  # two slots
    gates[1].set()
    assert (await ahead.take() or (None,))[0] == 1
    gates[2].set()
    assert (await ahead.take() or (None,))[0] == 2
    assert begun == [0, 1, 2]  # no more are allowed
    idle = ahead.idle
    await asyncio.sleep(0.01)
    assert ahead.idle == idle  # task 0 is still played
    gates[0].set()
    assert (await ahead.take() or (None,))[0] == 0
    await asyncio.sleep(0.02)
    assert ahead.idle > idle
    ahead.allow(5)
    gates[3].set()
    assert (await ahead.take() or (None,))[0] == 3
    assert await ahead.take() is None
    await ahead.close()


async def test_an_error_of_a_task_ends_the_wait() -> None:
    async def play(place: int) -> list[ScoredGroup]:
        await asyncio.sleep(0)
        raise DataError("no more")

    ahead = Ahead(play, itertools.count(), slots=2)
    ahead.allow(2)
    with pytest.raises(DataError, match="no more"):
        await ahead.take()
    await ahead.close()


async def test_the_shares_leave_evaluations_out(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    idling = Idling(Ahead(lambda place: asyncio.sleep(0, []), iter(()), slots=1))  # nothing is ever sampled
    clock[0] += 8
    idling.waited(2)
    with idling.beside():
        clock[0] += 50
    assert idling.step() == {"async/optimiser_idle": 0.25, "async/sampler_idle": 1.0}
    clock[0] += 2
    assert idling.step() == {"async/optimiser_idle": 0.0, "async/sampler_idle": 1.0}
    assert "of 10 s the optimiser waited 20% for rollouts, and 100% nothing was sampled" in idling.total()


def kept(folder: Path, places: Sequence[int]) -> KeptGroups:
    lines = [group(place, [0]).model_dump_json() for place in places]
    (folder / "groups.jsonl").write_text("".join(f"{line}\n" for line in lines))
    found = KeptGroups(folder / "groups.jsonl")
    found.look()
    return found


def test_a_resumed_run_makes_its_steps_of_the_same_tasks(tmp_path: Path) -> None:
    first = StepOrder(tmp_path, kept(tmp_path, []))
    assert first.begin(0) == 0
    for step, tasks in enumerate([((1, 0), ()), ((3, 2), (4,)), ((6, 5), ())]):
        first.write(step, StepTasks(tasks[0], (), tasks[1], 2))
    first.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"step": 3, "pla')  # killed
    again = StepOrder(tmp_path, kept(tmp_path, range(7)))
    assert again.begin(1) == 3
    assert again.of(1) == StepTasks((3, 2), (), (4,), 2)
    assert again.of(3) is None
    assert list(itertools.islice(again.places(None), 3)) == [7, 8, 9]
    assert list(again.places(9)) == [7, 8]
    again.close()
    lost = StepOrder(tmp_path, kept(tmp_path, range(4)))  # the disk lost its last seconds
    assert lost.begin(1) == 2
    assert list(itertools.islice(lost.places(None), 4)) == [5, 6, 7, 8]  # 4 was dropped
    lost.close()
    assert [json.loads(line)["step"] for line in (tmp_path / FILE).read_text().splitlines()] == [0, 1]
    with pytest.raises(DataError, match="does not say what step 3 was made of"):
        StepOrder(tmp_path, kept(tmp_path, range(4))).begin(4)
    (tmp_path / FILE).write_text('{"step": 0, "places": "x"}\n')
    with pytest.raises(DataError, match="is damaged"):
        StepOrder(tmp_path, kept(tmp_path, range(4)))


def test_what_is_too_old_is_left_out() -> None:
    one = group(0, [5, 3, 2, None])
    assert [rollout.reward for rollout in without_old(one, 5, 2).rollouts] == [1.0, 1.0, None, 1.0]
    assert ages([without_old(one, 5, 2)], 5) == {
        "batch/dropped": 1.0,
        "batch/other_weights": pytest.approx(2 / 3),
        "batch/age": 1.0,
        "batch/age_max": 2.0,
    }
    unknown = without_old(group(0, [5, 4], logprobs=False), 5, 2)
    assert [rollout.reward for rollout in unknown.rollouts] == [1.0, None]


def test_another_thread_waits_while_the_first_runs_what_is_not_asynchronous() -> None:
    loop, ran = LoopThread(), []

    async def job() -> int:
        here = LoopThread.here()
        assert here is not None
        (value,), _ = await here.in_caller([lambda: ran.append(threading.current_thread().name) or 7], 10)
        return int(value)

    def other() -> None:
        found.append(loop.call(job()))

    found: list[int] = []
    thread = threading.Thread(target=other, name="other")

    async def both() -> None:
        thread.start()
        await asyncio.to_thread(thread.join)

    loop.call(both())
    thread.join()
    assert found == [7]
    assert ran == ["MainThread"]
    assert loop.call(job()) == 7
    loop.close()
