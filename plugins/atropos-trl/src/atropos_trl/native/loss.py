"""The losses, term by term, and the log-probabilities they are made of.

A loss is a sum over all trained tokens of a step, loss = sum_i w_i sum_t m_it l_it: the weight w_i of a row holds the
whole normalisation, so the gradient does not depend on how rows are cut into micro-batches.
Sources of the formulas: docs/explanation/losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from atropos_trl.config import AlgorithmName
from atropos_trl.rows import IMPORTANCE_CAP

if TYPE_CHECKING:
    import torch

    from .rows import Row

CHUNK = 1024
"""Trained tokens whose logits are held at a time."""


@dataclass(frozen=True)
class LossSpec:
    """One loss. level: what the ratio is of: a token, a row's geometric mean ("sequence") or a whole row ("sum").

    aggregate: mean over a row's tokens, then over rows ("rows"); over all tokens ("tokens"); token sum over
    rows x length ("constant"). epsilon_high None: epsilon. For kind "cispo" epsilon_high is the most a ratio may be.
    kl_ratio: the KL term is multiplied by the ratio, which makes its gradient unbiased off-policy (as in TRL).
    """

    kind: Literal["clip", "cispo"] = "clip"
    level: Literal["token", "sequence", "sum"] = "token"
    aggregate: Literal["rows", "tokens", "constant"] = "rows"
    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    beta: float = 0.0
    kl_ratio: bool = True
    length: int = 1


ALGORITHMS: dict[AlgorithmName, LossSpec] = {
    "grpo": LossSpec(),
    "dr_grpo": LossSpec(aggregate="constant", advantage="dr_grpo"),
    "dapo": LossSpec(aggregate="tokens", epsilon_high=0.28),
    "bnpo": LossSpec(aggregate="tokens"),  # the local batch is the whole step here
    "gspo": LossSpec(level="sequence", epsilon=3e-4, epsilon_high=4e-4),
    "cispo": LossSpec(kind="cispo", aggregate="tokens", epsilon_high=5.0),
    "rloo": LossSpec(level="sum", advantage="rloo"),  # its KL is charged to the reward, not to the loss
}


def row_weights(spec: LossSpec, tokens: Sequence[int]) -> list[float]:
    """The weight of each row of a step. tokens: how many trained tokens each has."""
    rows, total = max(1, len(tokens)), max(1, sum(tokens))
    if spec.aggregate == "rows":
        return [1 / (rows * max(1, n)) for n in tokens]
    return [1 / total if spec.aggregate == "tokens" else 1 / (rows * spec.length)] * len(tokens)


def kl_k3(logp: torch.Tensor, ref: torch.Tensor) -> torch.Tensor:
    """exp(ref - logp) - (ref - logp) - 1 for each token: never negative, and KL(policy, ref) in the mean."""
    return (ref - logp).exp() - (ref - logp) - 1


def policy_loss(
    spec: LossSpec,
    logp: torch.Tensor,
    old: torch.Tensor,
    mask: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor],
    ref: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of some rows of a step, and sums over their trained tokens (for means over the step).

    logp, old, ref, mask: (rows, tokens); mask is 1.0 for trained tokens, values elsewhere do not count.
    scales: (advantages, weights of row_weights), each (rows,); advantages may be (rows, tokens).
    """
    import torch

    advantages, weights = (scale if scale.dim() == 2 else scale[:, None] for scale in scales)
    log_ratio = (logp - old) * mask
    if spec.level != "token":
        count = mask.sum(-1, keepdim=True).clamp(min=1) if spec.level == "sequence" else 1
        log_ratio = log_ratio.sum(-1, keepdim=True) / count
    ratio = log_ratio.exp()
    high = spec.epsilon if spec.epsilon_high is None else spec.epsilon_high
    if spec.kind == "cispo":
        clipped = (ratio > high) & (advantages > 0)
        loss = -ratio.clamp(max=high).detach() * advantages * logp
    else:
        low, up = ratio < 1 - spec.epsilon, ratio > 1 + high
        clipped = (low & (advantages < 0)) | (up & (advantages > 0))
        loss = -torch.min(ratio * advantages, ratio.clamp(1 - spec.epsilon, 1 + high) * advantages)
    sums = {"clip_ratio/region_mean": (clipped * mask).sum(), "ratio": (ratio.detach() * mask).sum()}
    if ref is not None:
        kl = kl_k3(logp, ref)
        sums["kl"] = (kl.detach() * mask).sum()
        if spec.beta and spec.level != "sum":
            loss = loss + spec.beta * (kl * ratio if spec.kl_ratio else kl)
    return (loss * mask * weights).sum(), sums


def importance(rows: Sequence[Row], logp: torch.Tensor) -> torch.Tensor | None:
    """min(C, p / q) of each token that other weights sampled with probability q, 1 for the others; (rows, tokens).

    Truncated importance sampling: multiplied with the advantage, it makes the gradient that of the weights as they
    are, but for what the cap takes. None where no token needs it.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    if not any(row.other and any(row.other) for row in rows):
        return None
    other = pad_sequence([torch.tensor(row.other or (False,) * len(row.ids)) for row in rows], batch_first=True)
    sampled = pad_sequence([torch.tensor(row.logprobs or (0.0,) * len(row.ids)) for row in rows], batch_first=True)
    ratio = (logp.detach() - sampled.to(logp)).exp().clamp(max=IMPORTANCE_CAP)
    return torch.where(other.to(logp.device), ratio, torch.ones_like(ratio))


def token_logps(
    model: Any, ids: torch.Tensor, attention: torch.Tensor, mask: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probability, detached entropy), (rows, tokens) each, 0 where mask is 0; a first token has no value.

    Only trained tokens go through the output layer, and only CHUNK of them at a time: the logits of a whole batch,
    which need more memory than all else, never exist.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    keep = mask[:, 1:].bool()
    targets = ids[:, 1:][keep]
    head = base.get_output_embeddings()
    if _scaled(base.config):  # these change the logits behind the output layer
        states = base(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1][keep]
        head = torch.nn.Identity()
    else:
        decoder = base.get_decoder()
        states = decoder(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state[:, :-1][keep]

    def score(part: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(part).float() / temperature
        norm = logits.logsumexp(-1)
        with torch.no_grad():
            entropy = norm - ((logits - norm[:, None]).exp() * logits).sum(-1)
        return logits.gather(-1, wanted[:, None]).squeeze(-1) - norm, entropy

    parts = list(zip(states.split(CHUNK), targets.split(CHUNK), strict=True))
    if len(parts) > 1 and torch.is_grad_enabled():
        scored = [checkpoint(score, *part, use_reentrant=False) for part in parts]
    else:
        scored = [score(*part) for part in parts]
    empty = torch.zeros(ids.shape, device=ids.device)
    place = torch.nn.functional.pad(keep, (1, 0))
    logp = empty.masked_scatter(place, torch.cat([pair[0] for pair in scored]))
    return logp, empty.masked_scatter(place, torch.cat([pair[1] for pair in scored]))


def _scaled(config: Any) -> bool:
    names = ("final_logit_softcapping", "logit_scale", "logits_scaling")
    return any(getattr(config, name, None) not in (None, 1, 1.0) for name in names)
