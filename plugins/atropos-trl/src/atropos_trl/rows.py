"""From scored groups to the rows that TRL's `rollout_func` returns: ids, masks and logprobs exactly as sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atropos_cli.sdk import Rollout, ScoredGroup, TokenSequence, token_sequences
from atropos_cli.sdk.training import TrainerError

NATIVE = "--trainer native trains on such groups"
MOST_SPLIT = 0.1
"""Share of a batch's rollouts that may be several token sequences before it is an error."""


@dataclass
class Row:
    """One completion. trained: per completion token; all False when it must have no loss. other: see other_weights."""

    prompt_ids: list[int]
    completion_ids: list[int]
    trained: list[bool]
    logprobs: list[float] | None
    reward: float | None
    truncated: bool
    other: list[bool] | None = None

    def check(self) -> None:
        """Lengths agree and nothing is empty: TRL pads a short mask with "trained" and says nothing."""
        n = len(self.completion_ids)
        if not self.prompt_ids or not n:
            raise TrainerError("a rollout has no prompt or no completion tokens")
        if len(self.trained) != n or (self.logprobs is not None and len(self.logprobs) != n):
            raise TrainerError(f"a rollout has {n} completion tokens, but a mask of {len(self.trained)}")


@dataclass
class Batch:
    """Rows of one generation batch, whole groups one after the other, and what was left out of the loss."""

    rows: list[Row] = field(default_factory=list)
    failed: int = 0
    masked_truncated: int = 0
    long_prompts: int = 0
    shortest: int = 0
    """Tokens of the shortest prompt among those."""
    split: int = 0


def batch_of(
    places: Sequence[Sequence[ScoredGroup]],
    *,
    group_size: int,
    filler: int,
    mask_truncated: bool,
    max_prompt_tokens: int | None,
    version: int | None = None,
) -> Batch:
    """Rows of the groups of each place. Raises TrainerError for what TRL's fixed shape cannot hold.

    A place without groups (every rollout failed) and a failed rollout give rows without reward, advantage or loss,
    because TRL needs `group_size` rows from every prompt. A rollout that is several token sequences (now and then one
    whose text does not give its tokens back) has no loss, its reward counts; more than MOST_SPLIT are an error.
    filler: a token id for such rows. version: of the step's weights, where rollouts may be of others.
    """
    batch = Batch()
    split_one: Rollout | None = None
    for groups in places:
        if len(groups) > 1:
            raise TrainerError(
                f"task {groups[0].task.id!r} made {len(groups)} groups (one per turn, or per player); "
                "TRL takes one group from each task",
                hint=NATIVE,
            )
        if groups and len(groups[0].rollouts) != group_size:
            raise TrainerError(
                f"task {groups[0].task.id!r} made a group of {len(groups[0].rollouts)} rollouts, not {group_size}",
                hint=NATIVE,
            )
        rollouts: Sequence[Rollout | None] = groups[0].rollouts if groups else [None] * group_size
        for rollout in rollouts:
            row = None if rollout is None or rollout.reward is None else _row(rollout, version)
            if row is None:
                batch.failed += 1
                row = Row([filler], [filler], [False], [0.0], None, False)
            elif isinstance(row, Rollout) and row.completion is None:
                row = Row([filler], [filler], [False], [0.0], row.reward, False)
            elif isinstance(row, Rollout):
                batch.split += 1
                split_one = row
                row = Row([filler], [filler], [False], [0.0], row.reward, row.truncated)
            elif mask_truncated and row.truncated:
                batch.masked_truncated += 1
                row.trained = [False] * len(row.trained)
            if max_prompt_tokens is not None and len(row.prompt_ids) > max_prompt_tokens:
                batch.long_prompts += 1
                batch.shortest = min(batch.shortest or len(row.prompt_ids), len(row.prompt_ids))
                row = Row([filler], [filler], [False], [0.0], None, False)
            row.check()
            batch.rows.append(row)
    if split_one is not None and batch.split > MOST_SPLIT * len(batch.rows):
        raise TrainerError(
            f"{batch.split} of {len(batch.rows)} rollouts ({split_one.id!r} is one) are several token sequences: "
            "the chat template or the environment rewrites earlier turns; TRL takes one row per rollout",
            hint=NATIVE,
        )
    return batch


def _row(rollout: Rollout, version: int | None) -> Row | Rollout:
    """The rollout's row; the rollout itself when it is several sequences, or none: a side that never moved."""
    if rollout.completion is None:
        return rollout
    sequences = token_sequences(rollout)
    if not sequences:
        raise TrainerError(
            f"rollout {rollout.id!r} carries no sampled token ids",
            hint="sample in process (leave --base-url out), or from a server that returns token ids",
        )
    check_prompts(rollout.id, sequences)
    if len(sequences) > 1:
        return rollout
    row = split(sequences[0], reward=rollout.reward, truncated=rollout.truncated)
    if version is not None and (other := other_weights(sequences[0], version)) is not None:
        begin = len(row.prompt_ids)
        row.other = list(other[begin : begin + len(row.completion_ids)])
    return row


def check_prompts(rollout: str, sequences: Sequence[TokenSequence]) -> None:
    """Raises TrainerError for a sequence whose first token is trained: the tokens of its prompt are missing."""
    if not all(sequence.whole for sequence in sequences):
        raise TrainerError(
            f"rollout {rollout!r} carries the tokens of its reply without those of its prompt",
            hint="sample in process (leave --base-url out), or from a server that returns the prompt's token ids too",
        )


IMPORTANCE_CAP = 2.0
"""The most that a token sampled from other weights counts (C of truncated importance sampling)."""


def other_weights(sequence: TokenSequence, version: int) -> tuple[bool, ...] | None:
    """By token: was it sampled from other weights than those of this version? None where nothing can be corrected."""
    if sequence.logprobs is None:
        return None
    if sequence.versions is None:
        return sequence.mask
    return tuple(on and one != version for on, one in zip(sequence.mask, sequence.versions, strict=True))


def split(sequence: TokenSequence, *, reward: float | None, truncated: bool) -> Row:
    """The prompt is all before the first trained token; context after the last trained token is left out."""
    begin = sequence.mask.index(True)
    end = len(sequence.mask) - sequence.mask[::-1].index(True)
    logprobs = None if sequence.logprobs is None else list(sequence.logprobs[begin:end])
    return Row(
        prompt_ids=list(sequence.ids[:begin]),
        completion_ids=list(sequence.ids[begin:end]),
        trained=list(sequence.mask[begin:end]),
        logprobs=logprobs,
        reward=reward,
        truncated=truncated,
    )
