"""Rewards for mathematical answers of any kind, with math-verify in killable worker processes.

    rewards = (math_reward(deadline=3.0),)

Most answers are decided without a worker; what remains is decided by math-verify within the deadline.
A verifier that hangs, crashes or uses too much memory fails the rollout with the reason.
"""

from __future__ import annotations

import functools
import importlib.util

from atropos_cli.sdk import ConfigError, Reward, Rollout, Task
from atropos_verify.compare import Symbolic
from atropos_verify.extract import extract
from atropos_verify.pool import shared_pool
from atropos_verify.verdict import (
    NeedsWorker,
    Verdict,
    defer,
    find_number,
    gold_answers,
    in_worker,
    is_plain_number,
    judge_any,
    judge_math,
    judge_number,
)

if importlib.util.find_spec("math_verify") is None:
    raise ModuleNotFoundError("No module named 'math_verify'", name="math_verify")


def math_reward(
    *,
    deadline: float = 5.0,
    workers: int | None = None,
    memory_mb: int = 1024,
    tolerance: float = 0.0,
    plain_numbers: bool = False,
    name: str | None = None,
) -> Reward:
    """1.0 when the final answer equals `task.answer` (LaTeX or text), else 0.0.

    deadline: seconds for one verdict. workers, memory_mb: the shared pool of worker processes
    (default: one per core, at most four). tolerance: for numbers, times max(1, |gold|); 0 is exact.
    plain_numbers: find and compare the answer as `number_reward` does when the gold answer is a plain
    number; an answer is then also found as the last number of a text.
    """
    if not 0 < deadline <= 3600:
        raise ConfigError(f"deadline={deadline}: give seconds above 0, at most 3600")
    if not 0 <= tolerance < 1:
        raise ConfigError(f"tolerance={tolerance}: give a share of the answer, from 0 (exact) to below 1")

    def verdict(task: Task, rollout: Rollout, symbolic: Symbolic) -> Verdict:
        def judge(gold: str) -> Verdict:
            if plain_numbers and is_plain_number(gold):
                return judge_number(gold, rollout.text, tolerance=tolerance)
            return judge_math(gold, rollout.text, symbolic, tolerance=tolerance)

        return judge_any(gold_answers(task.answer), judge)

    async def score(task: Task, rollout: Rollout) -> float:
        try:
            return float(verdict(task, rollout, defer).correct)
        except NeedsWorker:
            pool = shared_pool(workers, memory_mb)
            job = functools.partial(verdict, task, rollout, in_worker(pool, deadline))
            return float((await pool.run(job)).correct)

    def extracted(task: Task, rollout: Rollout) -> str | None:
        if plain_numbers and any(is_plain_number(gold) for gold in gold_answers(task.answer)):
            return find_number(rollout.text).text
        return extract(rollout.text, "math").text

    score.__doc__ = "1 if the final answer equals the gold answer, symbolically"
    return Reward(score, name=name or ("answer" if plain_numbers else "math"), extract=extracted)


math = math_reward()
answer = math_reward(plain_numbers=True)
