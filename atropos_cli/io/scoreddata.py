"""A scored group as trajectory servers take it: parallel lists, one entry for each sequence.

The reader of the same format is `formats.atropos`.
"""

from __future__ import annotations

from typing import Any

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.messages import Message
from atropos_cli.domain.rollout import Rollout, TokenSequence, token_sequences
from atropos_cli.errors import DataError

_MASKED = -100
_MASKED_LOGPROB = 1.0


def scored_data(group: ScoredGroup, *, temperature: float | None = None) -> dict[str, Any] | None:
    """The group, or None when a rollout of it failed or has nothing to train on (an empty reply).

    Raises DataError for rollouts without tokens.
    """
    found = [(rollout, sequence) for rollout in group.rollouts for sequence in token_sequences(rollout)]
    if any(rollout.reward is None for rollout in group.rollouts):
        return None
    trained = {id(rollout) for rollout, _ in found}
    empty = [rollout for rollout in group.rollouts if id(rollout) not in trained]
    if any(message.tokens is not None for rollout in empty for message in rollout.messages):
        return None
    if empty:
        raise DataError(
            f"group {group.group_id} has rollouts without token ids: a trajectory server needs them",
            hint="use a backend that returns tokens (--backend local, vLLM, SGLang); --logprobs require insists",
        )
    known = all(sequence.logprobs is not None for _, sequence in found)
    return {
        "tokens": [list(sequence.ids) for _, sequence in found],
        "masks": [_labels(sequence) for _, sequence in found],
        "scores": [rollout.reward for rollout, _ in found],
        "messages": [_messages(rollout) for rollout, _ in found],
        "inference_logprobs": [_logprobs(sequence) for _, sequence in found] if known else None,
        "generation_params": None if temperature is None else {"temperature": temperature},
        "group_overrides": {},
        "overrides": None,
    }


def _labels(sequence: TokenSequence) -> list[int]:
    return [token if trained else _MASKED for token, trained in zip(sequence.ids, sequence.mask, strict=True)]


def _logprobs(sequence: TokenSequence) -> list[float]:
    values = sequence.logprobs or ()
    return [value if trained else _MASKED_LOGPROB for value, trained in zip(values, sequence.mask, strict=True)]


def _messages(rollout: Rollout) -> list[dict[str, Any]]:
    return [_message(message) for message in rollout.messages]


def _message(message: Message) -> dict[str, Any]:
    data = message.model_dump(mode="json", include={"role", "content", "tool_calls", "tool_call_id", "name"})
    return {name: value for name, value in data.items() if value is not None or name == "content"} | {
        "content": data["content"] if data["content"] is not None else ""
    }
