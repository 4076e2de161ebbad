"""From what an environment of verifiers returns to rollouts of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_cli.sdk import Message, Rollout, RolloutFailure, Task, stop_reason_of
from atropos_cli.sdk.backends import RequestRejected
from atropos_cli.sdk.foreign import Data, EngineModel, Sampled, joined_branches, message_of, number_of, usage_of


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
        branches = [[_message(item, model) for item in branch] for branch in entry["branches"]]
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
        usage=usage_of(model.exchanges if model is not None else ()),
        stop_reason=entry.get("stop") or (stop_reason_of(finish) if made_by else "done"),
        failure=failure,
    )


def _message(item: Data, model: EngineModel | None) -> Message:
    message = message_of(item)
    return message if model is None else model.as_sampled(message)


def _failure(entry: Data) -> RolloutFailure | None:
    error = entry.get("error")
    if error is None:
        return None
    stage: Any = "generate" if error.get("model") else error.get("stage", "environment")
    return RolloutFailure(stage=stage, type=str(error["type"]), message=str(error["message"]))


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, bool) else number_of(value)
