"""From what a task says of a sample to a rollout of ours."""

from __future__ import annotations

from atropos_cli.sdk import AtroposError, Rollout, RolloutFailure, Task, stop_reason_of
from atropos_cli.sdk.backends import RequestRejected
from atropos_cli.sdk.foreign import Data, EngineModel, Sampled, joined_branches, message_of, usage_of


def rollout_of(rollout_id: str, task: Task, said: Data, model: EngineModel) -> Rollout:
    """The conversation at the sample's end, with the engine's tokens where it sampled a reply for what precedes it.

    Replies that the solver wrote or edited, and requests that are in no message, such as those of a scorer, are not
    trained on.
    """
    try:
        conversation = [model.as_sampled(message_of(item)) for item in said["messages"]]
    except RequestRejected as error:
        return failed(rollout_id, task, error, model)
    messages, made_by = joined_branches([conversation], Sampled(model.exchanges))
    info: Data = {"scores": said["scores"]}
    if said["limit"] is not None:
        info["limit"] = said["limit"]
    if model.left_out:
        info["left_out"] = sorted(model.left_out)
    stop = stop_reason_of(made_by[-1].completion.finish_reason) if made_by else "done"
    return Rollout(
        id=rollout_id,
        task_id=task.id,
        messages=messages,
        info=info,
        metrics={"limited": float(said["limit"] is not None)},
        usage=usage_of(model.exchanges),
        stop_reason="step_limit" if said["limit"] is not None else stop,
    )


def failed(rollout_id: str, task: Task, error: AtroposError, model: EngineModel) -> Rollout:
    """The rollout of an exception in the task, or of a process that ended or hung."""
    failure = RolloutFailure(stage="environment", type=type(error).__name__, message=str(error))
    return Rollout(id=rollout_id, task_id=task.id, messages=(), failure=failure, usage=usage_of(model.exchanges))
