"""Failures that repeat from the start end a run, with message, file and line; failures beside success do not."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import Adding, Bench, Counting, say

from atropos_cli.domain.rollout import Rollout, RolloutFailure
from atropos_cli.errors import RunFailed
from atropos_cli.rollout.systematic import FailureWatch
from atropos_cli.sdk import Environment, Episode, Message, Task, TaskStream, group_reward, reward, user

HERE = Path(__file__)


def line_of(text: str) -> int:
    """The line of this file that ends with the given comment."""
    return next(number for number, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(f"# {text}"))


def helper(info: dict[str, Any], key: str) -> Any:
    return info[key]  # a key that no task has


@reward
def missing_key(task: Task, rollout: Rollout) -> float:
    return float(helper(task.info, f"gold-{task.id}"))


@reward  # defined here
def not_a_number(task: Task, rollout: Rollout) -> float:
    return float("nan")


@reward
async def in_the_library(task: Task, rollout: Rollout) -> float:
    await asyncio.sleep(0)
    return float(json.loads(f"{{{rollout.text}"))  # not JSON


@reward
def gives_up(task: Task, rollout: Rollout) -> float:
    sys.exit("no licence")  # a reward that quits


@reward
async def gives_up_later(task: Task, rollout: Rollout) -> float:
    await asyncio.sleep(0)
    sys.exit(0)  # one that quits later


@group_reward
def too_few(task: Task, rollouts: Sequence[Rollout]) -> list[float]:
    return [1.0]


class BrokenEpisode(Counting):
    def step(self, reply: Message) -> Any:
        raise AttributeError(f"no board in {self.task.id}")  # a broken step


class QuittingStep(Counting):
    def step(self, reply: Message) -> Any:
        sys.exit(0)  # a step that quits


class BrokenReset(Counting):
    def reset(self) -> Sequence[Message]:
        raise FileNotFoundError("données/été.json")  # a broken reset


class Empty(Counting):
    def step(self, reply: Message) -> Any:
        return []


def environment(rewards: tuple[Any, ...] = (), episode: type[Episode] | None = None) -> type[Environment]:
    class Broken(Adding):
        name = "broken"

    Broken.rewards = rewards or Adding.rewards
    if episode is not None:
        Broken.episode = lambda self, task: episode(task)  # type: ignore[method-assign,call-arg]
    return Broken


class WholeGroups(Adding):
    name = "whole"

    async def roll_group(self, task: Task, context: Any) -> Any:
        raise OSError(28, "нет места")  # a broken roll_group
        yield


class BadTasks(Adding):
    name = "bad-tasks"

    def tasks(self, split: str) -> Any:
        return TaskStream(lambda i: Task(id=f"t{i}", prompt=(user({}["prompt"]),)), length=5000)  # a broken task


@pytest.mark.parametrize(
    ("broken", "said", "place"),
    [
        (environment((missing_key,)), "reward missing_key: 'gold-t0'", "a key that no task has"),
        (environment((not_a_number,)), "the reward is nan", "defined here"),
        (environment((gives_up,)), "no licence", "a reward that quits"),
        (environment((gives_up_later,)), "it called sys.exit(0)", "one that quits later"),
        (environment(episode=QuittingStep), "SystemExit: 0", "a step that quits"),
        (environment((in_the_library,)), "reward in_the_library", "not JSON"),
        (environment((too_few,)), "1 values for 4 rollouts", None),
        (environment((*Adding.rewards, missing_key)), "reward missing_key", "a key that no task has"),
        (environment(episode=BrokenEpisode), "no board in t0", "a broken step"),
        (environment(episode=BrokenReset), "données/été.json", "a broken reset"),
        (environment(episode=Empty), "step() returned no message", None),
        (WholeGroups, "нет места", "a broken roll_group"),
        (BadTasks, "KeyError: 'prompt'", "a broken task"),
    ],
)
def test_what_always_fails_ends_the_run_with_file_and_line(
    bench: Bench, broken: type[Environment], said: str, place: str | None
) -> None:
    bench.use(broken)
    bench.answer(lambda request: say("1", n=request.n))
    plan = bench.plan(limit=5000, group_size=4, execution={"workers": 2, "max_failure_rate": 1.0})
    with pytest.raises(RunFailed, match="32 times in the same way and never worked") as caught:
        bench.run(plan)
    assert said in caught.value.message
    assert f"{HERE}:{line_of(place) if place else ''}" in caught.value.message
    assert len(bench.requests) < 60
    summary = json.loads((bench.folder / "summary.json").read_text())
    assert summary["state"] == "failed"
    assert said in summary["error"]
    assert all(str(HERE) in failure["place"] for failure in bench.failures())


@pytest.mark.parametrize(("limit", "worked"), [(0, None), (32, 3)])
def test_a_limit_of_none_and_one_success_let_the_run_go_on(bench: Bench, limit: int, worked: int | None) -> None:
    @reward
    def seldom(task: Task, rollout: Rollout) -> float:
        if task.id != f"t{worked}":
            raise KeyError(task.id)
        return 1.0

    bench.use(environment((seldom,)))
    execution = {"workers": 1, "same_failures": limit, "max_failure_rate": 1.0}
    summary = bench.run(bench.plan(limit=40, execution=execution))
    assert summary.rollouts == 80
    assert summary.rollouts_failed == 80 - (0 if worked is None else 2)


def test_a_mended_run_is_resumed(bench: Bench) -> None:
    bench.use(environment((missing_key,)))
    with pytest.raises(RunFailed):
        bench.run(bench.plan(limit=50))

    @reward
    def mended(task: Task, rollout: Rollout) -> float:
        return 1.0

    bench.use(environment((mended.named("missing_key", 1.0),)))
    assert bench.run(bench.plan(limit=50), resume=True).groups_done == 50


def rollout(stage: str | None, message: str = "x", kind: str = "KeyError") -> Rollout:
    failed = None if stage is None else RolloutFailure(stage=stage, type=kind, message=message)  # type: ignore[arg-type]
    return Rollout(id="r", task_id="t", messages=(), failure=failed)


@pytest.mark.parametrize(
    "before",
    [
        [None],  # one success
        ["score:a", "score:b", "score:c"],  # different failures
        ["generate:down"] * 9,  # the server's failures are its own
        ["timeout:late"] * 9,
    ],
)
def test_what_is_no_systematic_failure(before: list[str | None]) -> None:
    watch = FailureWatch(4)
    for item in before:
        stage, _, message = (item or "").partition(":")
        watch.look([rollout(stage or None, message)])
    with_success = before == [None]
    for _ in range(9 if with_success else 3):
        watch.look([rollout("score", "same")])
    if not with_success:  # one more of the same is systematic
        with pytest.raises(RunFailed, match="failed 4 times"):
            watch.look([rollout("score", "same")])


@pytest.mark.parametrize(("stage", "earlier"), [("score", "environment"), ("environment", "reset"), ("score", "reset")])
def test_a_later_stage_proves_the_earlier_ones(stage: str, earlier: str) -> None:
    watch = FailureWatch(4)
    watch.look([rollout(stage)])
    watch.look([rollout(earlier)] * 20)
    with pytest.raises(RunFailed, match=f"stage '{stage}' failed 4 times"):
        watch.look([rollout(stage)] * 3)
