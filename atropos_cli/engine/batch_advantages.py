"""Advantages that need more than one group: normalised over a batch, over games, or against a reference model.

Sources: GRPO scaled over the batch and GDPO's normalize_then_sum as TRL computes them; Beta Normalization
(arXiv 2506.02864); LaTRO (2411.04282, equations 3 and 4); role-conditioned advantage estimation of SPIRAL
(2506.24119, equation 2). Every member must have a reward here; leave failed rollouts out beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from atropos_cli.engine.advantages import ZERO_SPREAD, mean_std, rloo_advantage, spread

Groups = Sequence[Sequence[float]]

_PDF_CAP = 1e6
"""Beta densities below 1e-6 would blow an advantage up without bound."""


def grpo_advantage_batch(groups: Groups, *, ddof: int = 1, eps: float = 1e-4) -> list[list[float]]:
    """(r - mean of its group) / (std of all rewards in the batch + eps); a group of equal rewards gets zeros."""
    everything = [reward for group in groups for reward in group]
    if not everything:
        return [[] for _ in groups]
    divisor = mean_std(everything, ddof)[1] + eps
    return [_centred(group, divisor) for group in groups]


def _centred(group: Sequence[float], divisor: float) -> list[float]:
    if len(group) < 2 or spread(group) <= ZERO_SPREAD or divisor == 0:
        return [0.0] * len(group)
    mean = math.fsum(group) / len(group)
    return [(reward - mean) / divisor for reward in group]


def normalize_then_sum(
    groups: Sequence[Sequence[Sequence[float]]], weights: Sequence[float], *, ddof: int = 1, eps: float = 1e-4
) -> list[float]:
    """GDPO: each reward standardised in its group, weighted, summed, then standardised over the batch.

    groups[g][i] holds the rewards of rollout i, one for each weight. Returns one value a rollout, groups in a
    row. A reward of large scale cannot drown a small one.
    """
    sums: list[float] = []
    for group in groups:
        parts = []
        for j, weight in enumerate(weights):
            column = [rewards[j] for rewards in group]
            parts.append([weight * value for value in _standardised(column, ddof, eps)])
        sums += [math.fsum(values) for values in zip(*parts, strict=True)]
    return _standardised(sums, ddof, eps)


def _standardised(values: Sequence[float], ddof: int, eps: float) -> list[float]:
    return _centred(values, mean_std(values, ddof)[1] + eps) if values else []


class BetaAdvantages(NamedTuple):
    """Advantages a group, and the Beta distribution they were divided by."""

    alpha: float
    beta: float
    advantages: list[list[float]]


def bnpo_beta_advantage(groups: Groups) -> BetaAdvantages:
    """Beta Normalization: (r - p) / BetaPDF(p; alpha, beta), p the mean of the group; rewards lie in [0, 1].

    alpha = 1 + a/3 and beta = 1 + b/3, both at least 1, where Beta(a, b) is fitted by moments to the means of
    the groups (sample variance). With one group, or groups of one mean, the density is 1: plain centring.
    """
    for group in groups:
        if not group:
            raise ValueError("a group is empty")
        if any(not 0 <= reward <= 1 for reward in group):
            raise ValueError("Beta Normalization needs rewards between 0 and 1")
    means = [math.fsum(group) / len(group) for group in groups]
    alpha, beta = _beta_of(means)
    advantages = []
    for group, mean in zip(groups, means, strict=True):
        factor = min(1 / density, _PDF_CAP) if (density := beta_pdf(mean, alpha, beta)) > 0 else _PDF_CAP
        flat = spread(group) <= ZERO_SPREAD
        advantages.append([0.0 if flat else (reward - mean) * factor for reward in group])
    return BetaAdvantages(alpha, beta, advantages)


def _beta_of(means: Sequence[float]) -> tuple[float, float]:
    mean, std = mean_std(means, 1) if means else (0.0, 0.0)
    if std**2 <= ZERO_SPREAD**2 or not 0 < mean < 1:
        return 1.0, 1.0
    c = mean * (1 - mean) / std**2 - 1
    return max(1.0, 1 + c * mean / 3), max(1.0, 1 + c * (1 - mean) / 3)


def beta_pdf(x: float, alpha: float, beta: float) -> float:
    """The density of Beta(alpha, beta) at x, for parameters of at least 1."""
    if alpha == 1 and beta == 1:
        return 1.0
    if not 0 < x < 1:
        edge = alpha if x <= 0 else beta
        return 0.0 if edge > 1 else max(alpha, beta)
    log_norm = math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta)
    return math.exp((alpha - 1) * math.log(x) + (beta - 1) * math.log1p(-x) - log_norm)


class EmptyAnswer(ValueError):
    """The gold answer has no tokens: its sum, 0, would be the best reward there is."""

    code = "empty_answer"


def latro_reward(answer_logprobs: Sequence[float], normalize: Literal["sum", "mean"] = "sum") -> float:
    """log p(gold answer | question, rationale): the sum over the answer's tokens, and no others. Raises EmptyAnswer."""
    if not answer_logprobs:
        raise EmptyAnswer("the gold answer has no tokens")
    total = math.fsum(answer_logprobs)
    return total if normalize == "sum" else total / len(answer_logprobs)


class LatroAdvantages(NamedTuple):
    """reward: of the answer alone. adjusted: less the KL charge. advantage: against the mean of the others."""

    reward: list[float]
    adjusted: list[float]
    advantage: list[float]


def latro_advantage(
    answer_logprob_sum: Sequence[float],
    log_ratio: Sequence[float],
    *,
    beta: float = 0.05,
    finished: Sequence[bool] | None = None,
    truncation_multiplier: float = 2.0,
) -> LatroAdvantages:
    """LaTRO's advantages of the rationales of one question.

    log_ratio: log p(rationale) - log p_ref(rationale), sums over tokens. finished: False for a rationale that
    hit the length limit; its reward becomes truncation_multiplier times the mean reward of the batch. That is a
    penalty because rewards are negative, so a positive one, or a multiplier below 1, is a ValueError.
    """
    if any(value > 1e-6 for value in answer_logprob_sum):
        raise ValueError("a log probability is above 0")
    if truncation_multiplier < 1:
        raise ValueError(f"truncation_multiplier must be at least 1, not {truncation_multiplier}: it is a penalty")
    whole = finished if finished is not None else [True] * len(answer_logprob_sum)
    mean = math.fsum(answer_logprob_sum) / len(answer_logprob_sum) if answer_logprob_sum else 0.0
    rewards = [
        value if done else truncation_multiplier * mean for value, done in zip(answer_logprob_sum, whole, strict=True)
    ]
    adjusted = [reward - beta * ratio for reward, ratio in zip(rewards, log_ratio, strict=True)]
    return LatroAdvantages(rewards, adjusted, [value or 0.0 for value in rloo_advantage(adjusted)])


Order = Literal["subtract_then_update", "update_then_subtract"]


@dataclass(slots=True)
class RoleBaselines:
    """Running baselines of self-play, one for each game and role: b <- alpha * b + (1 - alpha) * R.

    order: "subtract_then_update" reads the baseline before it sees the reward (unbiased, as the published code
    does); "update_then_subtract" is the paper's, whose advantages are alpha times as large.
    """

    alpha: float = 0.95
    order: Order = "subtract_then_update"
    init: float = 0.0
    values: dict[tuple[str, str], float] = field(default_factory=dict)

    def advantage(self, game: str, role: str, reward: float) -> float:
        """reward - baseline; the baseline of the game and role moves towards the reward."""
        old = self.values.get((game, role), self.init)
        new = self.alpha * old + (1 - self.alpha) * reward
        self.values[game, role] = new
        return reward - (old if self.order == "subtract_then_update" else new)


def rae(episodes: Iterable[Mapping[str, Any]], baselines: RoleBaselines) -> list[float]:
    """Advantages of the roles of episodes {game, rewards: {role: reward}}, in their order; `baselines` move along."""
    return [
        baselines.advantage(episode["game"], role, reward)
        for episode in episodes
        for role, reward in episode["rewards"].items()
    ]
