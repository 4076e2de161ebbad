"""Rewards for answers that are numbers: GSM8K and its like. No extra package is needed.

    rewards = (gsm8k, gsm8k_strict.with_weight(0.0))     # train on the flexible verdict, report the strict one

Both read the content of the last assistant message and `task.answer` ("72", "#### 72", 72, or a list).
"""

from __future__ import annotations

import functools

from atropos_cli.sdk import ConfigError, Reward, Rollout, Task
from atropos_verify.verdict import find_number, gold_answers, judge_any, judge_number


def number_reward(
    *, strict: bool = False, tolerance: float = 0.0, name: str | None = None, weight: float = 1.0
) -> Reward:
    """1.0 when the final number is the gold number, else 0.0. Compared exactly.

    strict: the answer must follow "#### ", as in GSM8K; otherwise it is found by the rules in
    `atropos_verify.extract`. tolerance: accept a difference of tolerance * max(1, |gold|).
    """
    if not 0 <= tolerance < 1:
        raise ConfigError(f"tolerance={tolerance}: give a share of the answer, from 0 (exact) to below 1")

    def score(task: Task, rollout: Rollout) -> float:
        judge = functools.partial(judge_number, text=rollout.text, strict=strict, tolerance=tolerance)
        return float(judge_any(gold_answers(task.answer), judge).correct)

    def extracted(task: Task, rollout: Rollout) -> str | None:
        return find_number(rollout.text, strict=strict).text

    score.__doc__ = "1 if the answer after '#### ' is right" if strict else "1 if the final number is right"
    name = name or ("number_strict" if strict else "number")
    return Reward(score, name=name, weight=weight, extract=extracted)


gsm8k = number_reward(name="gsm8k")
gsm8k_strict = number_reward(name="gsm8k_strict", strict=True)
