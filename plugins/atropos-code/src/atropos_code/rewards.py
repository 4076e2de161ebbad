"""Rewards of programs. They judge the reply themselves, so they score stored rollouts as well."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import JsonValue

from atropos_cli.sdk import DataError, Rollout, Task, group_reward, reward
from atropos_code import judging, prediction


def code_given(task: Task, rollout: Rollout) -> str | None:
    """The code in a reply, None when there is none."""
    return judging.code_of(task, rollout.text) or None


def move_given(task: Task, rollout: Rollout) -> JsonValue:
    """A player's move in the game: the proposer's program, an opponent's prediction."""
    return rollout.info.get("prediction") if rollout.info.get("role") == "opponent" else code_given(task, rollout)


@group_reward(name="code_runs", extract=code_given)
async def code_runs(task: Task, rollouts: Sequence[Rollout]) -> list[float]:
    """1.0 for a program that runs with output, 0.5 without, -0.5 for one that does not compile, -1.0 that fails.

    No code counts like code that does not compile. A reply without a program would otherwise be better
    off than one with a bug.
    """
    results = await asyncio.gather(*(judging.run_reply(task, rollout.text) for rollout in rollouts))
    return [result.reward for result in results]


@group_reward(name="code_tests", extract=code_given)
async def code_tests(task: Task, rollouts: Sequence[Rollout]) -> list[float]:
    """1 for a program that passes all tests of the task, else 0."""
    suite = judging.suite_of(task)
    if suite is None:
        raise DataError(f"task {task.id} has no tests", hint="use the reward code_runs")
    results = await asyncio.gather(*(judging.test_reply(task, suite, rollout.text) for rollout in rollouts))
    return [result.reward for result in results]


@group_reward(name="code_tests_levels", weight=0.0, extract=code_given)
async def code_tests_levels(task: Task, rollouts: Sequence[Rollout]) -> list[float]:
    """The levels of code_runs gated by tests: 1.0 passes all, -0.5 no code that compiles, -1.0 anything else."""
    suite = judging.suite_of(task)
    if suite is None:
        raise DataError(f"task {task.id} has no tests", hint="use the reward code_runs")
    results = await asyncio.gather(*(judging.test_reply(task, suite, rollout.text) for rollout in rollouts))
    return [result.level for result in results]


@reward(name="code_game", extract=move_given)
def code_game(task: Task, rollout: Rollout) -> float:
    """Proposer: 1 when its output was not predicted, -1 when it was or the program is void. Opponent: the negative.

    Reads what the game found out from the rollout's info. A proposer with several opponents gets the
    mean. With task.info["proposer_reward"] "learnability" it gets 1 - solve rate if strictly between
    0 and 1, else 0; -1 for a void program.
    """
    info = rollout.info
    actual = str(info.get("output") or "")
    valid = {"ran_ok": info.get("ran_ok") is True, "deterministic": info.get("deterministic") is True}
    if info.get("role") == "opponent":
        predicted = info.get("prediction")
        return prediction.scores(actual, None if predicted is None else str(predicted), **valid)[1]
    if info.get("role") != "proposer":
        return 0.0
    given = info.get("predictions")
    predictions = [None if item is None else str(item) for item in given] if isinstance(given, list) else []
    values = [prediction.scores(actual, item, **valid)[0] for item in predictions]
    if not values:
        return -1.0
    if task.info.get("proposer_reward") == "learnability" and all(valid.values()):
        return prediction.learnability([value < 0 for value in values])
    return sum(values) / len(values)
