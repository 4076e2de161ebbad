"""From scored groups and from demonstrations to what `forward_backward` takes, and the numbers of a step.

A datum holds a sequence without its last token, and for each of its places the next token (the target), shifted by
one: its weight, or its advantage and the log-probability that it was sampled with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.sdk import DataError, Rollout, ScoredGroup, token_sequences
from atropos_cli.sdk.training import IGNORED, TrainerError

_EQUAL = 1e-8


@dataclass(frozen=True)
class Datum:
    """ids: the whole sequence. trained: by target. Without logprobs it is a demonstration."""

    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    logprobs: tuple[float, ...] | None = None
    advantage: float = 0.0

    @property
    def tokens(self) -> int:
        return sum(self.trained)

    def as_tinker(self) -> Any:
        """The client's datum."""
        import tinker

        inputs = {"target_tokens": _tensor(self.ids[1:], "int64")}
        if self.logprobs is None:
            inputs["weights"] = _tensor([float(on) for on in self.trained], "float32")
        else:
            inputs["logprobs"] = _tensor(self.logprobs, "float32")
            inputs["advantages"] = _tensor([self.advantage * on for on in self.trained], "float32")
        return tinker.Datum(model_input=tinker.ModelInput.from_ints(list(self.ids[:-1])), loss_fn_inputs=inputs)


def _tensor(values: Sequence[float], dtype: Any) -> Any:
    import tinker

    return tinker.TensorData(data=list(values), dtype=dtype, shape=[len(values)])


def data_of(groups: Sequence[ScoredGroup], *, mask_truncated: bool, vocabulary: int) -> list[Datum]:
    """The data of a step, those without an advantage too. Raises TrainerError where tokens or numbers are missing.

    They keep the number of rows the same from step to step: SkyRL's server compiles for each number, and divides by it.
    """
    found = []
    for group in groups:
        if group.advantages is None:
            raise TrainerError(
                f"group {group.group_id!r} carries no advantages", hint="roll with --advantage grpo (the default)"
            )
        for rollout, advantage in zip(group.rollouts, group.advantages, strict=True):
            if rollout.reward is None or rollout.completion is None or advantage is None:
                continue
            if not (mask_truncated and rollout.truncated):
                found += _of_rollout(rollout, advantage, vocabulary)
    return found


def _of_rollout(rollout: Rollout, advantage: float, vocabulary: int) -> list[Datum]:
    sequences = token_sequences(rollout)
    if not sequences or not all(one.whole for one in sequences):
        raise TrainerError(
            f"rollout {rollout.id!r} carries no sampled token ids, or not those of its prompt",
            hint="generate with a backend that returns token ids (tinker, local, SGLang or vLLM)",
        )
    found = []
    for one in sequences:
        if one.logprobs is None:
            raise TrainerError(
                f"rollout {rollout.id!r} lacks the log-probabilities it was sampled with",
                hint="generate with --logprobs require",
            )
        if max(one.ids) >= vocabulary:
            raise DataError(
                f"rollout {rollout.id!r} has token {max(one.ids)}, the model's are 0 to {vocabulary - 1}",
                hint="groups of another tokenizer: --model must be that which sampled them",
            )
        found.append(Datum(one.ids, one.mask[1:], one.logprobs[1:], advantage))
    return found


def demonstration(row: Mapping[str, Sequence[int]]) -> Datum:
    """The datum of input_ids and labels."""
    trained = tuple(label != IGNORED for label in row["labels"][1:])
    return Datum(tuple(row["input_ids"]), trained)


def summary(groups: Sequence[ScoredGroup]) -> dict[str, float]:
    """Known of a step's groups before any computing, by TRL's names."""
    rollouts = [one for group in groups for one in group.rollouts if one.reward is not None]
    rewards = [one.reward for one in rollouts if one.reward is not None]
    if not rewards:
        return {}
    mean = math.fsum(rewards) / len(rewards)
    known = [[one.reward for one in group.rollouts if one.reward is not None] for group in groups]
    equal = [max(values) - min(values) <= _EQUAL for values in known if values]
    lengths = [sum(map(sum, (one.mask for one in token_sequences(rollout)))) for rollout in rollouts]
    return {
        "reward": mean,
        "reward_std": math.sqrt(math.fsum((x - mean) ** 2 for x in rewards) / max(1, len(rewards) - 1)),
        "frac_reward_zero_std": sum(equal) / len(equal),
        "completions/mean_length": sum(lengths) / len(lengths),
        "completions/clipped_ratio": sum(one.truncated for one in rollouts) / len(rollouts),
    }


def learnt(
    data: Sequence[Datum], logprobs: Iterable[Sequence[float]], clip: Mapping[str, float] | None
) -> dict[str, float]:
    """The numbers of a step, from the log-probabilities before it: means over trained tokens, with any server.

    clip: of ppo and cispo.
    """
    loss = drift = ratios = entropy = clipped = 0.0
    tokens = sum(datum.tokens for datum in data)
    for datum, values in zip(data, logprobs, strict=True):
        before = datum.logprobs
        for place, (on, value) in enumerate(zip(datum.trained, values, strict=True)):
            if not on:
                continue
            entropy -= value
            if before is None:
                loss -= value
                continue
            ratio = math.exp(min(60.0, value - before[place]))
            loss -= ratio * datum.advantage
            drift += abs(value - before[place])
            ratios += ratio
            clipped += clip is not None and not clip["clip_low_threshold"] <= ratio <= clip["clip_high_threshold"]
    count = max(1, tokens)
    found = {"loss": loss / count, "num_tokens": float(tokens)}
    if any(datum.logprobs is not None for datum in data):
        found |= {
            "entropy": entropy / count,
            "sampling/sampling_logp_difference/mean": drift / count,
            "sampling/importance_sampling_ratio/mean": ratios / count,
        }
        if clip is not None:
            found["clip_ratio/region_mean"] = clipped / count
    return found
