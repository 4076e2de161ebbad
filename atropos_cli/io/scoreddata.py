"""A scored group as trajectory servers take and give it: parallel lists, one entry for each sequence.

The reader of such rows in files, whatever program wrote them, is `formats.atropos`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.domain.rollout import Rollout, TokenSequence, token_sequences
from atropos_cli.domain.task import Task
from atropos_cli.errors import DataError
from atropos_cli.io.jsonvalue import clean_tree, encode

_MASKED = -100
_MASKED_LOGPROB = 1.0
_MOST_SCORE = 1e30
"""Squares of larger ones are beyond what trainers compute with."""
_VERSIONS = "weights_versions"
_SHOWN = ("role", "content", "tool_calls", "tool_call_id", "name")


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
        "messages": clean_tree([_messages(rollout) for rollout, _ in found]),
        "inference_logprobs": [_logprobs(sequence) for _, sequence in found] if known else None,
        "generation_params": None if temperature is None else {"temperature": temperature},
        "group_overrides": {"group_id": group.group_id},
        "overrides": _overrides(found),
    }


def received_group(raw: Any, *, group_id: str, last: bool) -> ScoredGroup:
    """What a server gave as a group. Raises DataError.

    The tokens of a sequence are on its last reply; the task's info has the temperature, where it is known.
    Advantages are taken where each sequence has one for all its tokens.
    """
    if (fault := _fault(raw)) is not None:
        raise DataError(f"not a scored group: {fault}")
    try:
        known = {name: raw.get(name) or [None] * len(raw["tokens"]) for name in _LISTS}
        sequences = zip(raw["tokens"], *known.values(), strict=True)
        given = raw.get("group_overrides") or {}
        task = clean_text(f"{raw.get('env_id')}/{given.get('group_id', group_id)}")
        rollouts = [
            _received(f"{group_id}/{place}", task, ids, dict(zip(known, values, strict=True)))
            for place, (ids, *values) in enumerate(sequences)
        ]
        return ScoredGroup(
            group_id=group_id,
            last=last,
            env=f"environment {raw.get('env_id')}",
            task=Task(id=task, prompt=_prompt(rollouts), info=_info(raw)),
            rollouts=tuple(rollouts),
            advantages=_advantages(raw.get("advantages"), raw["masks"]),
            model="",
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DataError(f"not a scored group: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"not a scored group: {text:.200}") from error


def _fault(raw: Any) -> str | None:
    """The fields that are missing or have another length than the tokens; None if there are none."""
    if not isinstance(raw, dict):
        return f"{type(raw).__name__} in the place of an object"
    for name in ("tokens", *_LISTS):
        value = raw.get(name)
        if value is None and name not in ("tokens", "masks", "scores"):
            continue
        if not isinstance(value, list):
            return f"{name} is not a list"
        if len(value) != len(raw["tokens"]) and (value or name in ("masks", "scores")):
            return f"{name}: {len(value)} for {len(raw['tokens'])} sequences"
    for name in ("tokens", "masks", "inference_logprobs"):
        for place, (one, ids) in enumerate(zip(raw.get(name) or (), raw["tokens"], strict=False)):
            if not isinstance(one, list):
                return f"{name}[{place}] is not a list"
            if len(one) != len(ids) and (one or name == "masks"):
                return f"{name}[{place}]: {len(one)} for {len(ids)} tokens"
    for name, rows in (("overrides", raw.get("overrides") or ()), *((key, (raw.get(key),)) for key in _OBJECTS)):
        if not all(row is None or isinstance(row, dict) for row in rows):
            return f"{name}: expected an object"
    return None


_OBJECTS = ("generation_params", "group_overrides")
_LISTS = ("masks", "scores", "inference_logprobs", "messages", "overrides")


def _received(name: str, task: str, ids: list[int], known: dict[str, Any]) -> Rollout:
    mask = tuple(label != _MASKED for label in known["masks"])
    values, own = known["inference_logprobs"], known["overrides"] or {}
    # All logprobs 1.0: the sampler gave none. What is above 0 where a token is trained is no log-probability.
    usable = values and all(_is_logprob(value) for value, trained in zip(values, mask, strict=True) if trained)
    versions = _versions(own.get(_VERSIONS) or (), len(ids))
    span = TokenSpan(
        ids=tuple(ids),
        mask=mask,
        logprobs=tuple(float(v) if on else 0.0 for v, on in zip(values, mask, strict=True)) if usable else None,
        restart=True,
        version=min((v for v, on in zip(versions, mask, strict=False) if on and v is not None), default=None),
    )
    score = float(known["scores"])
    if not abs(score) < _MOST_SCORE:
        raise ValueError(f"a score of {score:g}")
    messages = _conversation(known["messages"] or ())
    place = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=None)
    if place is None:
        place = len(messages)
        messages.append(Message(role="assistant", content=""))
    messages[place] = messages[place].model_copy(update={"tokens": span})
    return Rollout(
        id=name,
        task_id=task,
        messages=tuple(messages),
        reward=score,
        stop_reason=own.get("stop_reason"),
    )


def _versions(runs: Any, most: int) -> list[int | None]:
    """By token, from runs of [version, number of tokens]. Raises ValueError."""
    try:
        return [version for version, length in runs for _ in range(min(length, most))]
    except (TypeError, ValueError):
        raise ValueError(f"{_VERSIONS} are not pairs of a version and a number of tokens") from None


def _is_logprob(value: Any) -> bool:
    return isinstance(value, int | float) and -math.inf < value <= 0


def _conversation(rows: Sequence[dict[str, Any]]) -> list[Message]:
    """The messages, for people to read; none where they are not such as ours: the tokens are what counts."""
    try:
        shown = [{name: row[name] for name in _SHOWN if name in row} for row in rows]
        text = json.dumps(shown, ensure_ascii=False)
        cleaned = clean_text(text)
        return [Message.model_validate(row) for row in (shown if cleaned == text else json.loads(cleaned))]
    except (ValidationError, TypeError):
        return []


def _info(raw: Any) -> JsonDict:
    temperature = (raw.get("generation_params") or {}).get("temperature")
    return {"temperature": float(temperature)} if isinstance(temperature, int | float) else {}


def _prompt(rollouts: Sequence[Rollout]) -> tuple[Message, ...]:
    """What the model saw before its first reply, where all rollouts agree on it."""
    prompts = set()
    for rollout in rollouts:
        first = next(place for place, message in enumerate(rollout.messages) if message.role == "assistant")
        prompts.add(tuple(encode(message) for message in rollout.messages[:first]))
        found = rollout.messages[:first]
    return found if len(prompts) == 1 else ()


def _advantages(values: Any, masks: Sequence[Sequence[int]]) -> tuple[float, ...] | None:
    if not values:
        return None
    found = []
    for one, labels in zip(values, masks, strict=True):
        if len(one) != len(labels):  # as stock environments of atroposlib send them: not one for each token
            return None
        trained = {value for value, label in zip(one, labels, strict=True) if label != _MASKED}
        if len(trained) > 1:
            return None
        found.append(float(trained.pop()) if trained else 0.0)
    return tuple(found)


def _overrides(found: Sequence[tuple[Rollout, TokenSequence]]) -> list[dict[str, Any]] | None:
    """By sequence: why it was cut off, and the weights' versions as runs of [version, number of tokens]."""
    given: list[dict[str, Any]] = []
    for rollout, sequence in found:
        own: dict[str, Any] = {"stop_reason": rollout.stop_reason} if rollout.truncated else {}
        if sequence.versions is not None:
            own[_VERSIONS] = [[version, len(list(run))] for version, run in groupby(sequence.versions)]
        given.append(own)
    return given if any(given) else None


def _labels(sequence: TokenSequence) -> list[int]:
    return [token if trained else _MASKED for token, trained in zip(sequence.ids, sequence.mask, strict=True)]


def _logprobs(sequence: TokenSequence) -> list[float]:
    values = sequence.logprobs or ()
    return [value if trained else _MASKED_LOGPROB for value, trained in zip(values, sequence.mask, strict=True)]


def _messages(rollout: Rollout) -> list[dict[str, Any]]:
    return [_message(message) for message in rollout.messages]


def _message(message: Message) -> dict[str, Any]:
    data = message.model_dump(mode="json", include=set(_SHOWN))
    return {name: value for name, value in data.items() if value is not None or name == "content"} | {
        "content": data["content"] if data["content"] is not None else ""
    }
