"""The engine as a whole, with backends that behave and misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import (
    Adding,
    Bench,
    Counting,
    CountingEnvironment,
    FakeBackend,
    right,
    say,
    with_tokens,
)

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.messages import Message
from atropos_cli.domain.rollout import Rollout, token_sequences
from atropos_cli.domain.task import Task
from atropos_cli.errors import (
    BackendError,
    ContextOverflow,
    DataError,
    FatalBackendError,
    PlanChanged,
    RateLimited,
    RequestRejected,
    RunExists,
    RunLocked,
    ServerUnavailable,
    TransientBackendError,
    UsageError,
)
from atropos_cli.io.rundir import open_run
from atropos_cli.ports.environment import Environment, Episode, SingleTurn
from atropos_cli.ports.reward import group_reward, reward


def test_a_run_writes_groups_summary_and_plan(bench: Bench) -> None:
    summary = bench.run()
    assert summary.state == "finished"
    assert (summary.groups_done, summary.rollouts, summary.reward_mean) == (4, 8, 1.0)
    groups = [ScoredGroup.model_validate(group) for group in bench.groups()]
    assert [group.task.id for group in groups] == ["t0", "t1", "t2", "t3"]
    assert len({group.group_id for group in groups}) == 4
    assert groups[0].advantages == (0.0, 0.0)
    assert json.loads((bench.folder / "summary.json").read_text())["state"] == "finished"
    assert json.loads((bench.folder / "plan.json").read_text())["digest"] == summary.plan_digest
    assert bench.registry.observed[0] == "atropos_run_started"
    assert bench.registry.observed[-1] == "atropos_run_finished"
    assert len(bench.requests) == 4
    assert all(request.n == 2 for request in bench.requests)


@pytest.mark.parametrize("workers", [1, 3, 32])
@pytest.mark.parametrize("environment", [Adding, CountingEnvironment])
def test_requests_in_flight_equal_the_workers(bench: Bench, workers: int, environment: type[Adding]) -> None:
    full = asyncio.Event()

    async def hold(request: Any) -> Any:
        # Nobody is answered before all workers wait: a run that keeps fewer in flight would get stuck here.
        if FakeBackend.last.in_flight >= workers:
            full.set()
        async with asyncio.timeout(20):
            await full.wait()
        return say("x", n=request.n)

    bench.answer(hold)
    bench.use(environment)
    summary = bench.run(bench.plan(limit=100, execution={"workers": workers}))
    assert summary.max_in_flight == workers
    assert FakeBackend.last.most == workers


def test_the_same_command_again_refuses_then_resumes_then_overwrites(bench: Bench) -> None:
    bench.run()
    before = (bench.folder / "groups.jsonl").read_bytes()
    with pytest.raises(RunExists):
        bench.run()
    assert (bench.folder / "groups.jsonl").read_bytes() == before
    summary = bench.run(resume=True)
    assert (summary.groups_done, summary.groups_resumed, len(bench.requests)) == (4, 4, 0)
    longer = bench.run(bench.plan(limit=6), resume=True)
    assert (longer.groups_done, len(bench.requests)) == (6, 2)
    bench.answer(lambda request: say("wrong", n=request.n))
    assert bench.run(overwrite=True).reward_mean == 0.0
    assert len(bench.groups()) == 4
    assert not bench.folder.with_name("run.new").exists()


def test_overwrite_keeps_the_old_run_when_the_new_one_fails(bench: Bench) -> None:
    bench.run()
    before = (bench.folder / "groups.jsonl").read_bytes()

    def broken(request: Any) -> Any:
        raise FatalBackendError("no such model")

    bench.answer(broken)
    with pytest.raises(FatalBackendError):
        bench.run(overwrite=True)
    assert (bench.folder / "groups.jsonl").read_bytes() == before


def test_resume_refuses_a_changed_plan_with_the_difference(bench: Bench) -> None:
    bench.run()
    with pytest.raises(PlanChanged, match="group_size: 2 in the run, 3 now"):
        bench.run(bench.plan(group_size=3), resume=True)
    assert bench.run(bench.plan(execution={"workers": 2}), resume=True).groups_resumed == 4


def test_resume_of_a_run_that_never_began_starts_it(bench: Bench) -> None:
    assert bench.run(resume=True).groups_done == 4


def test_two_writers_cannot_share_a_run(bench: Bench) -> None:
    held = open_run(bench.folder)
    with pytest.raises(RunLocked, match=f"pid {os.getpid()}"):
        bench.run(resume=True)
    held.close()
    assert bench.run(resume=True).state == "finished"


def test_a_torn_tail_is_kept_aside_and_the_group_made_again(bench: Bench) -> None:
    bench.run()
    path = bench.folder / "groups.jsonl"
    path.write_bytes(path.read_bytes()[:-25])
    summary = bench.run(resume=True)
    assert (summary.groups_resumed, summary.groups_done) == (3, 4)
    assert sorted(group["task"]["id"] for group in bench.groups()) == ["t0", "t1", "t2", "t3"]
    assert (bench.folder / "groups.jsonl.torn").exists()


def test_a_broken_line_in_the_middle_stops_with_file_and_line(bench: Bench) -> None:
    bench.run()
    path = bench.folder / "groups.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b'{"schema_v\n' + b"".join(lines[1:]))
    (bench.folder / "groups.jsonl.idx").unlink()
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"groups\.jsonl:2: broken line"):
        bench.run(resume=True)
    assert path.read_bytes() == before


def test_one_rejected_request_is_that_groups_failure(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        if request.messages[0].text == "2+1":
            raise RequestRejected("400: invalid character in prompt", status=400)
        return right(request)

    bench.answer(answer)
    summary = bench.run(bench.plan(execution={"workers": 1}))
    assert summary.state == "failed"
    assert (summary.groups_done, summary.groups_failed) == (3, 1)
    assert summary.failures == {"generate:RequestRejected": 2}
    assert {f["task_id"] for f in bench.failures()} == {"t2"}
    assert "invalid character" in bench.failures()[0]["message"]
    assert len(bench.requests) == 4
    bench.answer(right)
    again = bench.run(resume=True)
    assert (again.state, again.groups_done, len(bench.requests)) == ("finished", 4, 1)


def test_failures_below_the_allowed_rate_are_a_success(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        if request.messages[0].text == "2+1":
            raise RequestRejected("400")
        return right(request)

    bench.answer(answer)
    assert bench.run(bench.plan(execution={"max_failure_rate": 0.25, "workers": 1})).state == "finished"


def test_a_server_that_rejects_everything_stops_the_run_early(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        raise RequestRejected("400: unknown field")

    bench.answer(answer)
    with pytest.raises(FatalBackendError, match="rejected the first 3 requests"):
        bench.run(bench.plan(limit=1000, execution={"workers": 1}))
    assert len(bench.requests) == 3


def test_a_transient_error_is_retried_within_the_budget(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atropos_cli.rollout.dispatch._FIRST_DELAY", 0.001)
    tries: Counter[str] = Counter()

    def answer(request: Any) -> Any:
        key = request.messages[0].text
        tries[key] += 1
        if key == "1+1" and tries[key] < 3:
            raise TransientBackendError("connection reset")
        if key == "2+1":
            raise TransientBackendError("connection reset")
        return right(request)

    bench.answer(answer)
    summary = bench.run(bench.plan(execution={"retries": 2}))
    assert (summary.groups_done, summary.groups_failed) == (3, 1)
    assert tries == {"0+1": 1, "1+1": 3, "2+1": 3, "3+1": 1}
    group = next(g for g in bench.groups() if g["task"]["id"] == "t1")
    assert group["rollouts"][0]["usage"] == {"prompt_tokens": 3, "requests": 3, "retries": 2}


def test_rate_limits_pause_everybody_and_cost_no_budget(bench: Bench) -> None:
    state = {"limited": 5}
    times: list[float] = []

    def answer(request: Any) -> Any:
        times.append(time.monotonic())
        if state["limited"]:
            state["limited"] -= 1
            raise RateLimited("slow down", retry_after=0.2)
        return right(request)

    bench.answer(answer)
    summary = bench.run(bench.plan(limit=8, execution={"workers": 8, "retries": 0}))
    assert (summary.groups_done, summary.groups_failed) == (8, 0)
    assert len(times) == 13
    assert summary.paused_s >= 0.2
    late = [t for t in times if t - times[0] >= 0.19]
    assert len(late) >= 8


def test_the_breaker_pauses_probes_and_goes_on(bench: Bench) -> None:
    state = {"down": False, "answered": 0}

    def answer(request: Any) -> Any:
        state["answered"] += 1
        if state["answered"] == 3:
            state["down"] = True
            FakeBackend.last.alive = False
            asyncio.get_running_loop().call_later(0.6, revive)
        if state["down"]:
            raise ServerUnavailable("no server listens at 127.0.0.1:1", address="127.0.0.1:1")
        return right(request)

    def revive() -> None:
        state["down"] = False
        FakeBackend.last.alive = True

    bench.answer(answer)
    summary = bench.run(bench.plan(limit=20, execution={"workers": 4, "retries": 0}))
    assert (summary.state, summary.groups_done) == ("finished", 20)
    assert FakeBackend.last.probes >= 1
    # Paid requests while it was down: at most the ones that were on their way.
    assert len(bench.requests) <= 20 + 4
    assert summary.paused_s >= 0.5
    log = (bench.folder / "log.jsonl").read_text()
    assert log.count('"event": "paused"') == 1
    assert '"event": "resumed"' in log


def test_a_probe_that_lies_costs_one_request_at_a_time(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        raise ServerUnavailable("503: paused, retry shortly")

    bench.answer(answer)
    with pytest.raises(ServerUnavailable, match=r"gave up after 1 s"):
        bench.run(bench.plan(limit=100, execution={"workers": 8, "max_wait": 1.0}))
    assert len(bench.requests) <= 8 + 4


def test_503_then_ready_counts_the_tries(bench: Bench) -> None:
    state = {"left": 3}

    def answer(request: Any) -> Any:
        if state["left"]:
            state["left"] -= 1
            raise ServerUnavailable("503: paused, retry shortly")
        return right(request)

    bench.answer(answer)
    summary = bench.run(bench.plan(limit=1, execution={"workers": 1, "retries": 0}))
    assert (summary.state, summary.retries) == ("finished", 3)
    assert bench.groups()[0]["rollouts"][0]["usage"]["retries"] == 3


def test_a_dead_server_ends_the_run_resumably(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        if len(FakeBackend.last.requests) > 2:
            FakeBackend.last.alive = False
            raise ServerUnavailable("no server listens at 127.0.0.1:1")
        return right(request)

    bench.answer(answer)
    began = time.monotonic()
    with pytest.raises(ServerUnavailable, match="no server listens") as caught:
        bench.run(bench.plan(limit=50, execution={"workers": 1, "max_wait": 1.0}))
    assert time.monotonic() - began < 20
    assert "--resume" in (caught.value.hint or "")
    assert len(bench.groups()) == 2
    assert json.loads((bench.folder / "summary.json").read_text())["state"] == "failed"
    bench.answer(right)
    assert bench.run(bench.plan(limit=5), resume=True).groups_done == 5


def test_a_server_that_ignores_n_is_asked_one_by_one(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        if request.n > 1:
            FakeBackend.last.capabilities = FakeBackend.last.capabilities.model_copy(update={"n": False})
        return say("one")

    bench.answer(answer)
    bench.run(bench.plan(limit=3, group_size=4, execution={"workers": 1}))
    assert [len(group["rollouts"]) for group in bench.groups()] == [4, 4, 4]
    assert [request.n for request in bench.requests].count(4) == 1
    assert len(bench.requests) == 12
    seeds = [request.seed for request in bench.requests]
    assert len(set(seeds)) == len(seeds)


def test_an_answer_broken_off_is_asked_again_once(bench: Bench) -> None:
    state = {"left": 1}

    def answer(request: Any) -> Any:
        if request.messages[0].text == "1+1" and state["left"]:
            state["left"] -= 1
            return say("The answer is", finish=None)
        if request.messages[0].text == "2+1":
            return say("The answer is", finish=None)
        return right(request)

    bench.answer(answer)
    bench.run(bench.plan(group_size=1, execution={"workers": 1}))
    stops = {group["task"]["id"]: group["rollouts"][0]["stop_reason"] for group in bench.groups()}
    assert stops == {"t0": "done", "t1": "done", "t2": "incomplete", "t3": "done"}


@pytest.mark.parametrize(
    ("generation", "stop", "reward_value"),
    [
        (say("half", finish="length"), "length", 0.0),
        (say("", finish="content_filter"), "content_filter", 0.0),
        (say("", finish="stop"), "done", 0.0),
        (say(None, finish="length", reasoning="so 1"), "length", 0.0),
    ],
)
def test_odd_answers_are_kept_as_they_are(bench: Bench, generation: Any, stop: str, reward_value: float) -> None:
    bench.answer(lambda request: generation)
    bench.run(bench.plan(limit=1, group_size=1))
    rollout = Rollout.model_validate(bench.groups()[0]["rollouts"][0])
    assert (rollout.stop_reason, rollout.reward) == (stop, reward_value)
    assert rollout.messages[-1].finish_reason == generation.completions[0].finish_reason
    assert rollout.messages[-1].reasoning == generation.completions[0].message.reasoning


def test_multi_turn_episodes_and_their_metrics(bench: Bench) -> None:
    bench.use(CountingEnvironment)
    bench.answer(lambda request: say(str(len(request.messages)), n=request.n))
    summary = bench.run(bench.plan(limit=3, group_size=2))
    rollout = Rollout.model_validate(bench.groups()[0]["rollouts"][0])
    assert [m.role for m in rollout.messages] == ["user", "assistant"] * 3
    assert summary.metrics["turns"] == 3.0
    assert summary.requests == 3 * (1 + 2 * 2)


def test_an_episode_that_outgrows_the_context_ends_truncated(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        if len(request.messages) > 3:
            raise ContextOverflow("2101 tokens is over the maximum context length of 2048")
        return say("move", n=request.n)

    bench.use(CountingEnvironment)
    bench.answer(answer)
    summary = bench.run()
    assert summary.stop_reasons == {"context_length": 8}
    assert summary.rollouts_failed == 0
    assert len(bench.groups()[0]["rollouts"][0]["messages"]) == 5


def test_tokens_of_turns_are_joined_without_retokenising(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        turn = len(request.messages) // 2
        prompt = [1, 2, *[x for t in range(turn) for x in (10 + t, 20 + t)]]
        return with_tokens(f"a{turn}", [10 + turn], prompt)

    bench.use(CountingEnvironment)
    bench.answer(answer)
    bench.run(bench.plan(limit=1, group_size=1))
    rollout = Rollout.model_validate(bench.groups()[0]["rollouts"][0])
    (sequence,) = token_sequences(rollout)
    assert sequence.ids == (1, 2, 10, 20, 11, 21, 12)
    assert sequence.mask == (False, False, True, False, True, False, True)
    assert sequence.logprobs == (0.0, 0.0, -0.5, 0.0, -0.5, 0.0, -0.5)


def test_a_template_that_rewrites_history_starts_a_new_sequence(bench: Bench) -> None:
    def answer(request: Any) -> Any:
        turn = len(request.messages) // 2
        return with_tokens(f"a{turn}", [10 + turn], [1, 2] if turn == 0 else [1, 3, turn])

    bench.use(CountingEnvironment)
    bench.answer(answer)
    bench.run(bench.plan(limit=1, group_size=1))
    rollout = Rollout.model_validate(bench.groups()[0]["rollouts"][0])
    assert [s.ids for s in token_sequences(rollout)] == [(1, 2, 10), (1, 3, 1, 11), (1, 3, 2, 12)]


class Explosive(Counting):
    """Fails where its task's number says."""

    def reset(self) -> Any:
        if self.task.id == "t0":
            raise KeyError("no room")
        return super().reset()

    async def step(self, reply: Message) -> Any:
        if self.task.id == "t1":
            raise RuntimeError("the engine crashed")
        return await super().step(reply)

    def close(self) -> None:
        closed.append(self.task.id)


closed: list[str] = []


class ExplosiveEnvironment(Adding):
    name = "explosive"

    def episode(self, task: Task) -> Episode:
        if task.id == "t3":
            raise OSError("no process")
        return Explosive(task)


def test_an_environment_that_fails_fails_its_own_rollouts_only(bench: Bench) -> None:
    closed.clear()
    bench.use(ExplosiveEnvironment)
    bench.answer(lambda request: say("x", n=request.n))
    summary = bench.run(bench.plan(limit=5))
    assert summary.failures == {"reset:KeyError": 2, "environment:RuntimeError": 2, "reset:OSError": 2}
    assert (summary.groups_done, summary.groups_failed, summary.state) == (2, 3, "failed")
    assert Counter(closed) == {"t0": 2, "t1": 2, "t2": 2, "t4": 2}


@reward(weight=2.0)
def sometimes(task: Task, rollout: Rollout) -> float:
    if task.id == "t0":
        return {}["missing"]  # type: ignore[no-any-return]
    return float("nan") if task.id == "t1" else 0.5


@group_reward(weight=1.0)
def ranks(task: Task, rollouts: Any) -> list[float]:
    return [float(i) for i, _ in enumerate(rollouts)]


class Scored(Adding):
    name = "scored"
    rewards = (sometimes, ranks)


def test_rewards_weights_groups_and_failures(bench: Bench) -> None:
    bench.use(Scored)
    summary = bench.run(bench.plan(limit=3))
    assert summary.failures == {"score:KeyError": 2, "score:ValueError": 2}
    (group,) = bench.groups()
    assert group["rollouts"][1]["rewards"] == {"sometimes": 0.5, "ranks": 1.0}
    assert [r["reward"] for r in group["rollouts"]] == [1.0, 2.0]
    assert group["advantages"] == pytest.approx([-0.70700678, 0.70700678])


def test_a_reward_can_be_reweighted_and_silenced(bench: Bench) -> None:
    bench.use(Scored)
    summary = bench.run(bench.plan(limit=5, rewards=("ranks=0.5",)))
    assert summary.rollouts_failed == 0
    assert [r["reward"] for r in bench.groups()[0]["rollouts"]] == [0.0, 0.5]
    with pytest.raises(UsageError, match="twice"):
        bench.plan(rewards=("ranks", "ranks=2"))
    with pytest.raises(UsageError, match="not a number"):
        bench.plan(rewards=("ranks=much",))


def test_an_unknown_split_is_refused_and_leaves_nothing(bench: Bench) -> None:
    with pytest.raises(UsageError, match="no split 'valid'"):
        bench.run(bench.plan(split="valid"))
    assert not bench.folder.exists()


def _send_when(ready: Callable[[], bool], number: int, *delays: float) -> None:
    """Send the signal once the run is under way, and again after each delay."""

    def send() -> None:
        while not ready():
            time.sleep(0.01)
        os.kill(os.getpid(), number)
        for delay in delays:
            time.sleep(delay)
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_leaves_a_resumable_run(bench: Bench, number: int) -> None:
    async def slow(request: Any) -> Any:
        await asyncio.sleep(0.15)
        seen.append(request)
        return right(request)

    seen: list[Any] = []
    bench.answer(slow)
    plan = bench.plan(limit=50, execution={"workers": 2, "drain": 30.0})
    _send_when(lambda: len(seen) >= 4, number)
    summary = bench.run(plan)
    sent = len(bench.requests)
    assert summary.state == "interrupted"
    assert 2 <= summary.groups_done == sent < 50
    assert json.loads((bench.folder / "summary.json").read_text())["state"] == "interrupted"
    bench.answer(right)
    assert bench.run(plan, resume=True).groups_done == 50
    assert len({g["group_id"] for g in bench.groups()}) == 50


def test_a_second_signal_stops_at_once(bench: Bench) -> None:
    async def hang(request: Any) -> Any:
        seen.append(request)
        await asyncio.sleep(60)

    seen: list[Any] = []
    bench.answer(hang)
    _send_when(lambda: bool(seen), signal.SIGINT, 0.3)
    began = time.monotonic()
    summary = bench.run(bench.plan(execution={"drain": 30.0}))
    assert time.monotonic() - began < 20
    assert (summary.state, summary.groups_done) == ("interrupted", 0)


@pytest.mark.parametrize("part", [FakeBackend, Environment])
def test_a_signal_ends_what_is_still_opening(bench: Bench, part: type, monkeypatch: pytest.MonkeyPatch) -> None:
    opening: list[bool] = []
    closed: list[str] = []

    async def load(self: Any, **_: Any) -> None:
        opening.append(True)
        await asyncio.sleep(60)

    async def close(self: Any) -> None:
        closed.append(self.name)

    monkeypatch.setattr(part, "open", load)
    monkeypatch.setattr(FakeBackend, "close", close)
    _send_when(lambda: bool(opening), signal.SIGINT)
    began = time.monotonic()
    assert bench.run(bench.plan(execution={"drain": 60.0})).state == "interrupted"
    assert time.monotonic() - began < 20
    assert closed == ["fake"]
    assert not (bench.folder / "plan.json").exists(), "nothing has started, so the folder holds no run"


def test_the_drain_is_bounded(bench: Bench) -> None:
    async def hang(request: Any) -> Any:
        seen.append(request)
        await asyncio.sleep(60)

    seen: list[Any] = []
    bench.answer(hang)
    _send_when(lambda: bool(seen), signal.SIGTERM)
    began = time.monotonic()
    assert bench.run(bench.plan(execution={"drain": 0.3})).state == "interrupted"
    assert time.monotonic() - began < 20


class Stuck(SingleTurn):
    async def step(self, reply: Message) -> None:  # type: ignore[override]
        await asyncio.sleep(60)


class StuckEnvironment(Adding):
    name = "stuck"

    def episode(self, task: Task) -> Episode:
        return Stuck(task) if task.id == "t1" else SingleTurn(task)


def test_the_group_deadline_ends_a_hanging_episode(bench: Bench) -> None:
    bench.use(StuckEnvironment)
    summary = bench.run(bench.plan(execution={"group_timeout": 0.5}))
    assert summary.failures == {"timeout:GroupDeadline": 2}
    assert summary.groups_done == 3


def test_a_full_disk_stops_the_run_and_keeps_what_is_whole(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for a full disk: the write fails in the middle of a group."""
    script = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from support import *
from atropos_cli.errors import DataError
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
from pathlib import Path
bench = Bench(Path({str(tmp_path)!r}) / "run")
bench.answer(lambda request: say("x" * 5_000, n=request.n))
try:
    bench.run(bench.plan(limit=100, execution={{"workers": 1}}))
except DataError as error:
    print(error.message)
    print(len(bench.requests), len(bench.groups()))
"""
    import subprocess
    import sys

    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "no space left" in out[0]
    requests, groups = map(int, out[1].split())
    assert groups + 1 <= requests <= groups + 2  # the next group may have asked while the last one was scored
    bench = Bench(tmp_path / "run")
    bench.answer(lambda request: say("x" * 5_000, n=request.n))
    assert bench.run(bench.plan(limit=100, execution={"workers": 1}), resume=True).groups_done == 100


def test_a_backend_that_cannot_open_leaves_no_run_behind(bench: Bench) -> None:
    async def refuse(self: Any, **options: Any) -> None:
        raise BackendError("model 'x' not found")

    bench.backend.open = refuse  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="not found"):
        bench.run()
    assert not bench.folder.exists()
    bench.folder.mkdir()
    (bench.folder / "mine.txt").write_text("a user's file")
    with pytest.raises(RunExists, match="not empty"):
        bench.run()
    with pytest.raises(BackendError, match="not found"):
        bench.run(resume=True)
    assert [path.name for path in bench.folder.iterdir()] == ["mine.txt"]


def test_a_server_that_starts_late_is_waited_for(bench: Bench) -> None:
    tries = []
    original = FakeBackend.open

    async def late(self: Any, **options: Any) -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ServerUnavailable("no server listens at 127.0.0.1:1")
        await original(self, **options)

    bench.backend.open = late  # type: ignore[method-assign]
    assert bench.run().groups_done == 4


def test_compressed_runs_resume_too(bench: Bench) -> None:
    plan = bench.plan(writer="jsonl.zst")
    bench.run(plan)
    path = bench.folder / "groups.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-10])
    for index in (True, False):
        if not index:
            (bench.folder / "groups.jsonl.zst.idx").unlink()
            path.write_bytes(path.read_bytes()[:-10])
        summary = bench.run(plan, resume=True)
        assert (summary.groups_resumed, summary.groups_done) == (3, 4)
