"""From what an environment of verifiers returns to rollouts of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_cli.sdk import Message, Rollout, RolloutFailure, Task, Usage, stop_reason_of
from atropos_cli.sdk.backends import RequestRejected
from atropos_cli.sdk.foreign import Data, EngineModel, Exchange, Sampled, joined_branches, message_of, number_of


def rollouts_of(task: Task, entries: Sequence[Data], models: Mapping[str, EngineModel]) -> list[Rollout]:
    """The rollouts of a request. models: by the name under which a rollout asked; ids are set later."""
    found = []
    for place, entry in enumerate(entries):
        model = models.get(str(entry.get("id", place)))
        found.append(_rollout(task, entry, model))
    return found


def failed(task: Task, error: BaseException) -> Rollout:
    """A rollout whose process raised, ended or hung."""
    failure = RolloutFailure(stage="environment", type=type(error).__name__, message=str(error))
    return Rollout(id="", task_id=task.id, messages=(), failure=failure)


def _rollout(task: Task, entry: Data, model: EngineModel | None) -> Rollout:
    failure = _failure(entry)
    try:
        branches = [tuple(message_of(item) for item in branch) for branch in entry["branches"]]
    except RequestRejected as error:
        branches = []
        failure = failure or RolloutFailure(stage="environment", type="RequestRejected", message=str(error))
    messages, made_by = joined_branches(branches, Sampled(model.exchanges if model is not None else ()))
    reward = number_of(entry["reward"])
    if failure is None and reward is None:
        said = f"the environment's reward is {entry['reward']!r}"
        failure = RolloutFailure(stage="score", type="NoReward", message=said)
    info: Data = {"reward": reward, **{key: value for key, value in entry.get("info", {}).items() if key != "reward"}}
    if model is not None and model.left_out:
        info["left_out"] = sorted(model.left_out)
    metrics = {
        str(name): value for name, item in entry.get("metrics", {}).items() if (value := _number(item)) is not None
    }
    if len(branches) > 1:
        metrics["branches"] = float(len(branches))
    finish = made_by[-1].completion.finish_reason if made_by else None
    return Rollout(
        id="",
        task_id=task.id,
        role=entry.get("role"),
        messages=messages,
        metrics=metrics,
        info=info,
        usage=_usage(model.exchanges if model is not None else ()),
        stop_reason=entry.get("stop") or (stop_reason_of(finish) if made_by else "done"),
        failure=failure,
    )


def _failure(entry: Data) -> RolloutFailure | None:
    error = entry.get("error")
    if error is None:
        return None
    stage: Any = "generate" if error.get("model") else "environment"
    return RolloutFailure(stage=stage, type=str(error["type"]), message=str(error["message"]))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else number_of(value)


def _usage(exchanges: Sequence[Exchange]) -> Usage:
    prompts = [item.generation.prompt_tokens for item in exchanges]
    replies = [item.completion.completion_tokens for item in exchanges]
    return Usage(
        prompt_tokens=sum(n for n in prompts if n is not None) if any(n is not None for n in prompts) else None,
        completion_tokens=sum(n for n in replies if n is not None) if any(n is not None for n in replies) else None,
        requests=len(exchanges),
    )


def prompt_of(rollouts: Sequence[Rollout]) -> tuple[Message, ...]:
    """The messages before the first reply, where all rollouts that have any begin with the same."""
    shared: list[Message] = []
    for place in zip(*(rollout.messages for rollout in rollouts if rollout.messages), strict=False):
        first = place[0]
        if first.role == "assistant" or any(item.role != first.role or item.content != first.content for item in place):
            break
        shared.append(first.model_copy(update={"tokens": None}))
    return tuple(shared)
