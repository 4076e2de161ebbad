"""From what an environment of atroposlib returns to rollouts of ours.

Token ids are the engine's where each reply that the environment trains on was sampled by it: the prompt as it was sent,
the reply as it came, its logprobs; the environment's masks say which replies count. Where they differ from the
sampled ones, and the environment's tokenizer is the model's, its own tokens and masks are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_cli.sdk import (
    Message,
    Rollout,
    RolloutFailure,
    ScoredGroup,
    Task,
    TokenSpan,
    stop_reason_of,
)
from atropos_cli.sdk.backends import RequestRejected
from atropos_cli.sdk.foreign import (
    Data,
    EngineModel,
    Exchange,
    Sampled,
    message_of,
    number_of,
    shared_prompt,
    usage_of,
    with_spans,
)

_SCORES = ("score", "reward", "grade", "correct", "is_correct", "success")
_HEADLINES = ("percent_correct", "accuracy", "win_rate", "acc", "score", "reward")


def rollouts_of(group_id: str, task: Task, entries: Sequence[Data], model: EngineModel) -> tuple[Task, list[Rollout]]:
    """The rollouts of a group, and the task with the messages that all of them begin with as its prompt."""
    sampled = Sampled(model.exchanges)
    rollouts = [_rollout(f"{group_id}/{n}", task, entry, sampled, model) for n, entry in enumerate(entries)]
    return task.model_copy(update={"prompt": shared_prompt(item.messages for item in rollouts)}), rollouts


def _rollout(rollout_id: str, task: Task, entry: Data, sampled: Sampled, model: EngineModel) -> Rollout:
    try:
        messages = tuple(message_of(item) for item in entry["messages"])
    except RequestRejected as error:
        failure = RolloutFailure(stage="environment", type="RequestRejected", message=str(error))
        return Rollout(id=rollout_id, task_id=task.id, messages=(), failure=failure)
    turns = sampled.turns(messages)
    made, metrics = _with_tokens(messages, turns, entry)
    score = number_of(entry["score"])
    info: Data = {"score": score, **entry.get("extra", {})}
    if model.left_out:
        info["left_out"] = sorted(model.left_out)
    finish = [turns[place].completion.finish_reason for place in turns]
    return Rollout(
        id=rollout_id,
        task_id=task.id,
        messages=made,
        info=info,
        metrics=metrics,
        usage=usage_of(list(turns.values())),
        stop_reason=(stop_reason_of(finish[-1]) if finish else None) or "done",
        failure=None
        if score is not None
        else RolloutFailure(stage="score", type="NoScore", message=f"the environment's score is {entry['score']!r}"),
    )


def _with_tokens(
    messages: tuple[Message, ...], turns: dict[int, Exchange], entry: Data
) -> tuple[tuple[Message, ...], dict[str, float]]:
    """The messages with token ids, by the rule of this module. own_tokens: 1 where they are the environment's."""
    if entry.get("tokens") is not None:
        own = _own_tokens(messages, entry)
        if own is not None:
            return own, {"own_tokens": 1.0}
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    count = entry.get("turns")
    trained = set(replies if count is None or count >= len(replies) else replies[len(replies) - count :])
    spans = with_spans(messages, turns, trained)
    return (messages if spans is None else spans), {"own_tokens": 0.0}


def _own_tokens(messages: tuple[Message, ...], entry: Data) -> tuple[Message, ...] | None:
    """The messages with the environment's tokens, all in the span of the last reply; None where they do not fit."""
    ids, masks = entry["tokens"], entry["masks"]
    places = [place for place, message in enumerate(messages) if message.role == "assistant"]
    if not places or len(ids) != len(masks) or not all(type(token) is int and token >= 0 for token in ids):
        return None
    mask = tuple(label != -100 for label in masks)
    given = entry.get("logprobs")
    logprobs = None
    if isinstance(given, list) and len(given) == len(ids):
        values = [number_of(value) for value in given]
        if all(value is not None and value <= 0 for value, used in zip(values, mask, strict=True) if used):
            logprobs = tuple(value or 0.0 if used else 0.0 for value, used in zip(values, mask, strict=True))
    span = TokenSpan(ids=tuple(ids), mask=mask, logprobs=logprobs, restart=True)
    made = list(messages)
    made[places[-1]] = made[places[-1]].model_copy(update={"tokens": span})
    return tuple(made)


def zeroed(group: ScoredGroup, entries: Sequence[Data]) -> ScoredGroup:
    """The group, with an advantage of 0 where the environment says set_advantage_to_zero."""
    marks = [_marked(entry.get("extra", {}).get("overrides")) for entry in entries]
    if group.advantages is None or not any(marks):
        return group
    values = tuple(
        0.0 if mark and value is not None else value for mark, value in zip(marks, group.advantages, strict=True)
    )
    return group.model_copy(update={"advantages": values})


def _marked(overrides: Any) -> bool:
    return isinstance(overrides, dict) and bool(overrides.get("set_advantage_to_zero"))


def evaluation_rollouts(group_id: str, task: Task, said: Data, model: EngineModel) -> list[Rollout]:
    """The rollouts of evaluate(): its samples where it logs some with messages, else the conversations it had.

    Each has the evaluation's metrics. Without a score of its own its score is the evaluation's main metric.
    """
    metrics = {str(name): float(value) for name, value in said["metrics"].items()}
    main = _main(metrics)
    sampled = Sampled(model.exchanges)
    found: list[tuple[tuple[Message, ...], float | None]] = []
    for sample in said["samples"]:
        if isinstance(sample, dict) and isinstance(sample.get("messages"), list):
            messages = tuple(message_of(item) for item in sample["messages"])
            scores = (_score(sample[key]) for key in _SCORES if key in sample)
            found.append((messages, next(scores, main)))
    if not found:
        found = [(messages, main) for messages in _conversations(model.exchanges)]
    made = []
    for n, (messages, score) in enumerate(found):
        turns = sampled.turns(messages)
        failure = None
        if score is None:
            failure = RolloutFailure(stage="score", type="NoScore", message="evaluate() logged no metric")
        made.append(
            Rollout(
                id=f"{group_id}/{n}",
                task_id=task.id,
                messages=messages,
                info={"score": score},
                metrics=metrics,
                usage=usage_of(list(turns.values())),
                stop_reason="done",
                failure=failure,
            )
        )
    return made


def _score(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else number_of(value)


def _main(metrics: Mapping[str, float]) -> float | None:
    for word in _HEADLINES:
        for name, value in metrics.items():
            if word in name.rpartition("/")[2]:
                return value
    return next(iter(metrics.values()), None)


def _conversations(exchanges: Sequence[Exchange]) -> list[tuple[Message, ...]]:
    """Those that no later request continues."""
    whole = [(*item.messages, item.completion.message.model_copy(update={"tokens": None})) for item in exchanges]
    seen = {tuple((message.role, message.text.strip()) for message in item.messages) for item in exchanges}
    return [item for item in whole if tuple((message.role, message.text.strip()) for message in item) not in seen]
