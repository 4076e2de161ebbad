"""One reward made of several: a weighted sum, behind a gate.

combined([math, think_format.with_weight(0.1)], gate=think_format)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from atropos_cli.sdk import ConfigError, Reward, Rollout, Task
from atropos_verify.shaping import value_of


def combined(
    parts: Sequence[Reward],
    *,
    gate: Reward | None = None,
    at_least: float = 0.5,
    closed: float = 0.0,
    bounds: tuple[float, float] | None = None,
    name: str = "combined",
) -> Reward:
    """The sum of weight * value over the parts, by the weights that they carry.

    gate: when it gives less than `at_least`, the result is `closed` and no part is computed. bounds: the
    sum is clipped to them. A part that fails makes the whole fail; nothing is counted as 0.
    The first part that extracts an answer speaks for the whole.
    """
    members = tuple(parts)
    if not members:
        raise ConfigError("combined() needs at least one reward")
    for member in (*members, *([gate] if gate else [])):
        if member.kind != "rollout":
            raise ConfigError(f"reward {member.name!r} scores whole groups and cannot be combined")
    if bounds is not None and not bounds[0] <= bounds[1]:
        raise ConfigError(f"bounds={bounds}: give (low, high)")

    async def score(task: Task, rollout: Rollout) -> float:
        if gate is not None and await value_of(gate, task, rollout) < at_least:
            return closed
        total = math.fsum([member.weight * await value_of(member, task, rollout) for member in members])
        return min(max(total, bounds[0]), bounds[1]) if bounds is not None else total

    score.__doc__ = "weighted sum of " + ", ".join(member.name for member in members)
    extract = next((member.extract for member in members if member.extract is not None), None)
    return Reward(score, name=name, extract=extract)
