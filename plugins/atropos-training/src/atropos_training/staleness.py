"""How old the tokens of a step's rollouts are, in versions of the weights, and the age from which they are left out.

The trainer corrects the others: each token of other weights by truncated importance sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atropos_cli.sdk import Rollout, ScoredGroup, token_sequences


def is_old(rollout: Rollout, step: int, most: int) -> bool:
    """Is any of its tokens more than `most` versions old, or of other weights without its log-probability?"""
    found = [(version, one.logprobs) for one in token_sequences(rollout) for version in set(one.versions or ())]
    given = [step - version for version, _ in found if version is not None]
    # Without their log-probabilities, tokens of other weights cannot be corrected.
    unknown = any(values is None and version not in (None, step) for version, values in found)
    return unknown or any(age > most for age in given)


def without(group: ScoredGroup, left_out: Callable[[Rollout], bool]) -> ScoredGroup:
    """Rollouts that are left out have no reward in this step: they are neither trained on nor compared with."""
    kept = [one.model_copy(update={"reward": None}) if left_out(one) else one for one in group.rollouts]
    return group.model_copy(update={"rollouts": tuple(kept)})


def without_old(group: ScoredGroup, step: int, most: int) -> ScoredGroup:
    """The group without rollouts that are too old for the step."""
    return without(group, lambda rollout: is_old(rollout, step, most))


def ages(groups: Sequence[ScoredGroup], step: int) -> dict[str, float]:
    """Of the step's trained tokens: their age in versions, and how many were not sampled from these weights."""
    known: list[int] = []
    tokens = other = dropped = 0
    for rollout in (one for group in groups for one in group.rollouts):
        dropped += rollout.reward is None
        for sequence in token_sequences(rollout) if rollout.reward is not None else ():
            versions = sequence.versions or (None,) * len(sequence.ids)
            mine = [version for version, on in zip(versions, sequence.mask, strict=True) if on]
            tokens += len(mine)
            other += sum(version != step for version in mine)
            known.extend(step - version for version in mine if version is not None)
    found = {"batch/dropped": float(dropped), "batch/other_weights": other / max(1, tokens)}
    if known:
        found |= {"batch/age": sum(known) / len(known), "batch/age_max": float(max(known))}
    return found
