"""Advantages of a group: how much better each rollout did than its siblings.

Formulas: GRPO (arXiv 2402.03300) as TRL computes it (sample standard deviation, eps 1e-4), Dr. GRPO
(2503.20783: mean only), RLOO (2402.14740: mean of the others), the mean of the same role. RAE, which has a state, is
in `baselines`. A member without a reward (None)
counts in no mean and gets None. A group whose rewards do not differ, or a group of one, gets zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

Rewards = Sequence[float | None]
Advantages = tuple[float | None, ...]

ZERO_SPREAD = 1e-8
"""Rewards closer than this are equal: 0.1 + 0.2 and 0.3 must not make a direction to learn."""


def spread(rewards: Rewards) -> float:
    """max - min of the known rewards; 0.0 for fewer than two."""
    known = [value for value in rewards if value is not None]
    return max(known) - min(known) if len(known) > 1 else 0.0


def decided(rewards: Rewards) -> bool:
    """Are all the same? A group whose rewards do not differ teaches nothing (DAPO, arXiv 2503.14476)."""
    return None not in rewards and spread(rewards) <= ZERO_SPREAD


def mean_std(values: Sequence[float], ddof: int) -> tuple[float, float]:
    """Mean and standard deviation with `ddof` (1: sample, 0: population); std 0.0 when undefined."""
    n = len(values)
    mean = math.fsum(values) / n
    if n <= ddof:
        return mean, 0.0
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - ddof))


def grpo_advantage(
    rewards: Rewards,
    *,
    ddof: int = 1,
    eps: float = 1e-4,
    scale: Literal["group", "none"] = "group",
) -> Advantages:
    """(r - mean) / (std + eps) within the group; scale "none" leaves the division out (Dr. GRPO)."""
    known = [value for value in rewards if value is not None]
    if len(known) < 2 or spread(known) <= ZERO_SPREAD:
        return tuple(None if value is None else 0.0 for value in rewards)
    mean, std = mean_std(known, ddof)
    divisor = std + eps if scale == "group" else 1.0
    return tuple(None if value is None else (value - mean) / divisor for value in rewards)


def rloo_advantage(rewards: Rewards) -> Advantages:
    """r minus the mean of the other members."""
    known = [value for value in rewards if value is not None]
    n = len(known)
    if n < 2 or spread(known) <= ZERO_SPREAD:
        return tuple(None if value is None else 0.0 for value in rewards)
    total = math.fsum(known)
    return tuple(None if value is None else value - (total - value) / (n - 1) for value in rewards)


KINDS: dict[str, Callable[[Rewards], Advantages]] = {
    "grpo": grpo_advantage,
    "dr_grpo": lambda rewards: grpo_advantage(rewards, scale="none"),
    "rloo": rloo_advantage,
}


def role_mean_advantage(rewards: Rewards, roles: Sequence[str | None]) -> Advantages:
    """r minus the mean of the group's rollouts of the same role."""
    found: list[float | None] = [None] * len(rewards)
    for role in dict.fromkeys(roles):
        places = [place for place, other in enumerate(roles) if other == role]
        values = grpo_advantage([rewards[place] for place in places], scale="none")
        for place, value in zip(places, values, strict=True):
            found[place] = value
    return tuple(found)


def advantages(kind: str, rewards: Rewards, roles: Sequence[str | None] = ()) -> Advantages | None:
    """Advantages of the plan's kind; None for kind "none", and for "rae", which depends on the groups before."""
    if kind == "role_mean":
        return role_mean_advantage(rewards, roles or [None] * len(rewards))
    return None if kind in ("none", "rae") else KINDS[kind](rewards)
