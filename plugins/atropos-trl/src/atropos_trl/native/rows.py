"""From scored groups to rows: one for each token sequence of each scored rollout, with the rollout's advantage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from atropos_cli.sdk import DataError, ScoredGroup, token_sequences
from atropos_cli.sdk.training import TrainerError
from atropos_trl.rows import check_prompts, other_weights

if TYPE_CHECKING:
    import torch

Kind = Literal["grpo", "dr_grpo", "rloo", "own"]
EPS, EQUAL = 1e-4, 1e-8


@dataclass(frozen=True)
class Row:
    """trained: by token, False for the first, which nothing predicts. owner: (group, rollout), for what is per rollout.

    logprobs: the sampler's, None where unknown. other: by token, was it sampled from other weights than the step's?
    """

    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    logprobs: tuple[float, ...] | None
    owner: tuple[int, int]
    other: tuple[bool, ...] | None = None

    @property
    def tokens(self) -> int:
        return sum(self.trained)


def advantages(rewards: Sequence[float | None], kind: Kind) -> list[float]:
    """Advantages within one group of any size; 0 for members without a reward, and where rewards do not differ."""
    known = [value for value in rewards if value is not None]
    n = len(known)
    if n < 2 or max(known) - min(known) <= EQUAL:
        return [0.0] * len(rewards)
    mean = math.fsum(known) / n
    scale = 1.0
    if kind == "grpo":
        scale = 1 / (math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (n - 1)) + EPS)
    elif kind == "rloo":
        scale = n / (n - 1)  # r - mean of the others
    return [0.0 if value is None else (value - mean) * scale for value in rewards]


def rows_of(
    groups: Sequence[ScoredGroup], *, mask_truncated: bool, vocabulary: int | None = None, version: int | None = None
) -> list[Row]:
    """The rows of a step. Raises TrainerError when a rollout carries no tokens.

    vocabulary: ids from there on are a DataError. version: of the step's weights, where rollouts may be of others.
    """
    rows = []
    for g, group in enumerate(groups):
        for r, rollout in enumerate(group.rollouts):
            if rollout.reward is None or rollout.completion is None:
                continue  # failed, or the side of a game that ended before its first move
            sequences = token_sequences(rollout)
            if not sequences:
                raise TrainerError(
                    f"rollout {rollout.id!r} carries no sampled token ids",
                    hint="generate with a backend that returns token ids (local, SGLang or vLLM)",
                )
            check_prompts(rollout.id, sequences)
            off = mask_truncated and rollout.truncated
            for sequence in sequences:
                if vocabulary is not None and not 0 <= min(sequence.ids) <= max(sequence.ids) < vocabulary:
                    raise DataError(
                        f"rollout {rollout.id!r} has token {max(sequence.ids)}, the model's are 0 to {vocabulary - 1}",
                        hint="groups of another tokenizer: --model must be that which sampled them",
                    )
                trained = (False, *((kept and not off) for kept in sequence.mask[1:]))
                other = None if version is None else other_weights(sequence, version)
                rows.append(Row(sequence.ids, trained, sequence.logprobs, (g, r), other))
    return rows


def group_advantages(
    groups: Sequence[ScoredGroup], kind: Kind, charge: dict[tuple[int, int], float]
) -> list[list[float]]:
    """Each group's advantages, by rollout. charge: taken off the rewards first. "own": those the group carries."""
    found = []
    for g, group in enumerate(groups):
        if kind == "own":
            if group.advantages is None:
                raise TrainerError(
                    f"group {group.group_id!r} carries no advantages",
                    hint="--advantages algorithm makes them from rewards",
                )
            found.append([value or 0.0 for value in group.advantages])
            continue
        rewards = [
            None if rollout.reward is None else rollout.reward - charge.get((g, r), 0.0)
            for r, rollout in enumerate(group.rollouts)
        ]
        found.append(advantages(rewards, kind))
    return found


def pack(rows: Sequence[Row], device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(ids, attention, mask), (rows, longest row) each, padded on the right."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids = pad_sequence([torch.tensor(row.ids) for row in rows], batch_first=True)
    attention = pad_sequence([torch.ones(len(row.ids), dtype=torch.long) for row in rows], batch_first=True)
    mask = pad_sequence([torch.tensor(row.trained, dtype=torch.float32) for row in rows], batch_first=True)
    return ids.to(device), attention.to(device), mask.to(device)


def summary(groups: Sequence[ScoredGroup], rows: Sequence[Row]) -> dict[str, float]:
    """What is known of a step before any computing, by TRL's names."""
    rollouts = [rollout for group in groups for rollout in group.rollouts if rollout.reward is not None]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    if not rewards:
        return {"rows": 0.0}
    mean = math.fsum(rewards) / len(rewards)
    known = [[r.reward for r in group.rollouts if r.reward is not None] for group in groups]
    equal = [max(values) - min(values) <= EQUAL for values in known if values]
    return {
        "reward": mean,
        "reward_std": math.sqrt(math.fsum((x - mean) ** 2 for x in rewards) / max(1, len(rewards) - 1)),
        "frac_reward_zero_std": sum(equal) / len(equal),
        "completions/mean_length": sum(row.tokens for row in rows) / len(rollouts),
        "completions/clipped_ratio": sum(rollout.truncated for rollout in rollouts) / len(rollouts),
        "rows": float(len(rows)),
    }
