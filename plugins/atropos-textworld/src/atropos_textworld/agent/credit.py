"""What a turn earned: points of the game, discounted credit for what came later, and the other terms."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_textworld.agent.options import AgentOptions

LENGTH_CAP = 0.1
"""Share of the reward that the length of a reply can cost or earn, at most."""


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_t = r_t + gamma * G_(t+1)."""
    returns: list[float] = []
    following = 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]


def token_length_adjust(score: float, tokens: int, *, baseline: int, scale: float, cap: float = LENGTH_CAP) -> float:
    """score + |score| * adjustment: shorter than the baseline is better, longer is worse, also for a bad score."""
    return score + abs(score) * max(-cap, min(cap, (baseline - tokens) * scale))


def total(
    options: AgentOptions, *, env: float, vrcli: float, form: float, latro: float = 0.0, tokens: int | None = None
) -> float:
    """The reward of an alternative from its terms; `tokens` is the length of the reply, if known."""
    extra = options.vrcli_share * vrcli + options.format_weight * form + options.latro_weight * latro
    rest = 1.0
    if options.combine == "mean":
        rest -= options.vrcli_share + options.format_weight + options.latro_weight
    value = extra + rest * env
    if options.length_scale and tokens is not None:
        value = token_length_adjust(value, tokens, baseline=options.length_baseline, scale=options.length_scale)
    return value
