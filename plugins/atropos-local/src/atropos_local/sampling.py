"""Choose next tokens: temperature, top-k, top-p, min-p, and one reproducible stream of numbers per sample.

A row's choice depends on its own logits, parameters and random numbers, not on the rows beside it. The
random number is turned into a token by the inverse of the cumulative distribution in the vocabulary's
order, so that a tiny change of the logits, as another batch shape makes it, moves a choice only when
the number falls into that tiny change.

The reported log-probability is that of the raw distribution: log-softmax of the model's own logits in
float32, at temperature 1 and before any truncation (what OpenAI-compatible servers call raw logprobs).
With `tempered` it is that of the logits divided by the row's temperature, which is what a trainer computes
again from its weights; truncation stays out of it, and greedy rows report raw values. A row that may take only some
tokens (see picking) reports the same: what a trainer computes again knows nothing of the constraint.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atropos_cli.sdk.backends import Sampling

if TYPE_CHECKING:
    from torch import Tensor

GREEDY_BELOW = 1e-5
_NUCLEUS_CANDIDATES = 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """Sampling parameters of one row with every default filled in. top_k 0, top_p 1 and min_p 0 mean off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @classmethod
    def of(cls, sampling: Sampling) -> Choice:
        """The row parameters of a request. Left-out values: temperature 1, no truncation."""
        temperature = 1.0 if sampling.temperature is None else sampling.temperature
        top_k = 0 if sampling.top_k is None else max(0, sampling.top_k)
        top_p = 1.0 if sampling.top_p is None else sampling.top_p
        return cls(temperature, top_k, top_p, sampling.min_p or 0.0)

    @property
    def greedy(self) -> bool:
        """Takes the most likely token."""
        return self.temperature < GREEDY_BELOW

    @property
    def truncates(self) -> bool:
        """Leaves out part of the vocabulary."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


def stream(seed: int | None, index: int) -> random.Random:
    """The random numbers of sample `index` of a request; the same seed and index give the same numbers anywhere."""
    return random.Random(f"{secrets.randbits(64) if seed is None else seed}:{index}")


def choose(
    logits: Tensor,
    choices: Sequence[Choice],
    numbers: Sequence[float],
    *,
    tempered: bool = False,
    allowed: Mapping[int, Sequence[int]] | None = None,
) -> tuple[list[int], list[float]]:
    """One token per row and its log-probability (see the module).

    logits: (rows, vocabulary), float32. numbers: one in [0, 1) per row, unused by greedy rows.
    A row whose logits hold NaN gets a NaN log-probability. allowed: the tokens that a row may take, where it may not
    take all; its log-probability stays that of the whole distribution.
    """
    import torch

    open_logits = _only(logits, allowed) if allowed else logits
    tokens = open_logits.argmax(dim=-1)
    drawn = [row for row, choice in enumerate(choices) if not choice.greedy]
    if drawn:
        picked = open_logits if len(drawn) == len(choices) else open_logits[drawn]
        tokens[drawn] = _draw(picked, [choices[row] for row in drawn], [numbers[row] for row in drawn])
    if tempered and drawn:
        scale = [1.0 if choice.greedy else choice.temperature for choice in choices]
        logits = logits / torch.tensor(scale, dtype=logits.dtype, device=logits.device)[:, None]
    logprobs = logits.gather(1, tokens[:, None])[:, 0] - torch.logsumexp(logits, dim=-1)
    return tokens.tolist(), logprobs.tolist()


def _only(logits: Tensor, allowed: Mapping[int, Sequence[int]]) -> Tensor:
    """The logits with what a row may not take at minus infinity."""
    import torch

    masked = logits.clone()
    for row, tokens in allowed.items():
        at = torch.tensor(tokens, device=logits.device)
        masked[row] = float("-inf")
        masked[row, at] = logits[row, at]
    return masked


def _draw(logits: Tensor, choices: Sequence[Choice], numbers: Sequence[float]) -> Tensor:
    import torch

    # The default number format is the process's, and another model may just be loading in a coarser one.
    temperatures = torch.tensor([choice.temperature for choice in choices], dtype=logits.dtype, device=logits.device)
    weights = torch.softmax(logits / temperatures[:, None], dim=-1)
    cut = [row for row, choice in enumerate(choices) if choice.truncates]
    if cut:
        weights[cut] = _truncate(weights[cut], [choices[row] for row in cut])
    cumulative = weights.cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    aims = torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None] * total
    # Rounding may lift the product to the total itself, behind the last token that has any weight.
    aims = torch.minimum(aims, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, aims, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)


def _truncate(weights: Tensor, choices: Sequence[Choice]) -> Tensor:
    """Probabilities with the left-out tokens at 0: top-k, then top-p of what remains, then min-p. Ties at k stay."""
    import torch

    def column(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=weights.dtype, device=weights.device)[:, None]

    vocabulary = weights.shape[-1]
    largest_k = max(choice.top_k for choice in choices)
    if largest_k:
        ranks = torch.tensor(
            [min(choice.top_k or vocabulary, vocabulary) for choice in choices], device=weights.device
        )[:, None]
        best = weights.topk(min(largest_k, vocabulary), dim=-1).values
        kth = best.gather(1, (ranks - 1).clamp(max=best.shape[-1] - 1))
        weights = torch.where((weights < kth) & (ranks < vocabulary), 0.0, weights)
    if any(choice.top_p < 1.0 for choice in choices):
        weights = _nucleus(weights, column([choice.top_p for choice in choices]))
    if any(choice.min_p > 0.0 for choice in choices):
        floor = column([choice.min_p for choice in choices]) * weights.amax(dim=-1, keepdim=True)
        weights = torch.where(weights < floor, 0.0, weights)
    return weights


def _nucleus(weights: Tensor, top_p: Tensor) -> Tensor:
    """Keep the smallest set of most likely tokens whose share reaches top_p."""
    import torch

    mass = top_p * weights.sum(dim=-1, keepdim=True)
    count = min(_NUCLEUS_CANDIDATES, weights.shape[-1])
    best, at = weights.topk(count, dim=-1)
    if bool(((best.sum(dim=-1, keepdim=True) < mass) & (top_p < 1.0)).any()):
        best, at = weights.sort(dim=-1, descending=True)  # a flat distribution: the candidates do not reach top_p
    before = best.cumsum(dim=-1) - best
    keep = (before < mass).to(weights.dtype)
    keep[:, 0] = 1.0
    kept = torch.zeros_like(weights).scatter(1, at, best * keep)
    return torch.where(top_p < 1.0, kept, weights)
