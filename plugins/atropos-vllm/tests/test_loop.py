"""The engine's thread, with an engine that counts: who joins, who leaves, and what happens when it fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from atropos_vllm.loop import EngineLoop, Job
from atropos_vllm.results import Sample

from atropos_cli.sdk.backends import BackendError, FatalBackendError, RequestRejected


class Counting:
    """A request with the arguments {"tokens": k} ends after k steps, with the ids 0 to k - 1."""

    def __init__(self) -> None:
        self.left: dict[str, list[int]] = {}
        self.aborted: list[str] = []
        self.most = 0
        self.prepared = 0
        self.gate = threading.Event()
        self.gate.set()
        self.broken: Exception | None = None
        self.closed = False

    @property
    def busy(self) -> bool:
        return bool(self.left)

    def prepare(self) -> None:
        self.prepared += 1
        if isinstance(self.broken, BackendError):
            raise self.broken

    def add(self, request_id: str, prompt: Sequence[int], arguments: dict[str, Any]) -> None:
        if arguments["tokens"] < 1:
            raise RequestRejected("no tokens wanted")
        self.left[request_id] = [0, arguments["tokens"]]

    def abort(self, request_ids: Sequence[str]) -> None:
        self.aborted.extend(request_ids)
        for request_id in request_ids:
            self.left.pop(request_id, None)

    def step(self) -> list[tuple[str, Sample | BackendError]]:
        self.gate.wait(10)
        if self.broken is not None:
            raise self.broken
        self.most = max(self.most, len(self.left))
        ended: list[tuple[str, Sample | BackendError]] = []
        for request_id, state in list(self.left.items()):
            state[0] += 1
            if state[0] == state[1]:
                del self.left[request_id]
                ended.append((request_id, Sample(tuple(range(state[1])), None, "length")))
        return ended

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engine() -> Counting:
    return Counting()


@pytest.fixture
def loop(engine: Counting) -> Iterator[EngineLoop]:
    loop = EngineLoop(lambda: engine)
    loop.start()
    loop.ready.result(10)
    yield loop
    engine.gate.set()
    loop.close()
    assert engine.closed


def job(*tokens: int) -> Job:
    return Job((1,), [{"tokens": count} for count in tokens])


def lengths(done: Job) -> list[int]:
    return [len(sample.ids) for sample in done.future.result(10)]


def test_samples_come_back_in_the_order_in_which_they_were_asked_for(loop: EngineLoop) -> None:
    wanted = job(5, 1, 3)
    loop.submit(wanted)
    assert lengths(wanted) == [5, 1, 3]


def test_jobs_run_together(loop: EngineLoop, engine: Counting) -> None:
    engine.gate.clear()
    jobs = [job(4, 4) for _ in range(3)]
    for each in jobs:
        loop.submit(each)
    engine.gate.set()
    assert [lengths(each) for each in jobs] == [[4, 4]] * 3
    assert engine.most > 2


def test_a_cancelled_job_leaves_and_the_others_stay(loop: EngineLoop, engine: Counting) -> None:
    engine.gate.clear()
    gone, kept = job(10_000_000, 10_000_000), job(3)
    loop.submit(gone)
    loop.submit(kept)
    gone.future.cancel()
    loop.cancelled()
    engine.gate.set()
    assert lengths(kept) == [3]
    loop.between(lambda: None).result(10)  # would never come while a sample runs
    assert not engine.busy


def test_a_refused_sample_fails_its_job_and_takes_back_its_others(loop: EngineLoop, engine: Counting) -> None:
    wanted = job(10_000_000, 0)
    loop.submit(wanted)
    with pytest.raises(RequestRejected):
        wanted.future.result(10)
    loop.between(lambda: None).result(10)
    assert not engine.busy
    assert len(engine.aborted) == 1


def test_work_between_waits_for_what_runs_and_goes_before_what_waits(loop: EngineLoop, engine: Counting) -> None:
    order: list[str] = []
    engine.gate.clear()
    first, second = job(2), job(2)
    first.future.add_done_callback(lambda future: order.append("first"))
    second.future.add_done_callback(lambda future: order.append("second"))
    loop.submit(first)
    while not engine.busy:
        threading.Event().wait(0.001)
    done = loop.between(lambda: order.append("between"))
    loop.submit(second)
    engine.gate.set()
    done.result(10)
    second.future.result(10)
    assert order == ["first", "between", "second"]
    assert engine.prepared == 2


def test_weights_that_do_not_fit_fail_the_request_and_not_the_engine(loop: EngineLoop, engine: Counting) -> None:
    engine.broken = FatalBackendError("do not fit")
    wanted = job(1)
    loop.submit(wanted)
    with pytest.raises(FatalBackendError, match="do not fit"):
        wanted.future.result(10)
    engine.broken = None
    again = job(1)
    loop.submit(again)
    assert lengths(again) == [1]


def test_work_that_fails_is_told_to_whoever_waits(loop: EngineLoop) -> None:
    def work() -> None:
        raise ValueError("no such folder\nand more")

    with pytest.raises(FatalBackendError, match=r"ValueError: no such folder$"):
        loop.between(work).result(10)
    assert loop.alive


def test_a_failed_step_ends_everything_with_its_reason(loop: EngineLoop, engine: Counting) -> None:
    engine.gate.clear()
    running = job(5)
    loop.submit(running)
    engine.broken = RuntimeError("out of memory")
    engine.gate.set()
    with pytest.raises(FatalBackendError, match="out of memory"):
        running.future.result(10)
    with pytest.raises(FatalBackendError, match="out of memory"):
        loop.submit(job(1))
    assert not loop.alive


def test_closing_fails_what_waits(loop: EngineLoop, engine: Counting) -> None:
    engine.gate.clear()
    running = job(10_000_000)
    loop.submit(running)
    threading.Timer(0.05, engine.gate.set).start()
    loop.close()
    with pytest.raises(BackendError, match="closed"):
        running.future.result(10)
    with pytest.raises(BackendError):
        loop.submit(job(1))


def test_a_start_that_fails_is_told() -> None:
    def build() -> Counting:
        raise FatalBackendError("no memory")

    loop = EngineLoop(build)
    loop.start()
    with pytest.raises(FatalBackendError, match="no memory"):
        loop.ready.result(10)
    loop.close()
    assert not loop.alive
