"""From what a task says of a sample to a rollout of ours, and from a role's replies to what the task sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atropos_cli.sdk import AtroposError, Message, Rollout, RolloutFailure, Task, Usage, stop_reason_of
from atropos_cli.sdk.backends import RequestRejected, finish_of
from atropos_cli.sdk.foreign import Data, EngineModel, Sampled, message_of, with_spans


def rollout_of(rollout_id: str, task: Task, said: Data, model: EngineModel) -> Rollout:
    """The conversation at the sample's end, with the engine's tokens where it sampled a reply for what precedes it.

    Replies that the solver wrote or edited, and requests that are in no message, such as those of a scorer, are not
    trained on.
    """
    try:
        messages = tuple(message_of(item) for item in said["messages"])
    except RequestRejected as error:
        return failed(rollout_id, task, error, model)
    turns = Sampled(model.exchanges).turns(messages)
    spans = with_spans(messages, turns, turns)
    info: Data = {"scores": said["scores"]}
    if said["limit"] is not None:
        info["limit"] = said["limit"]
    if model.left_out:
        info["left_out"] = sorted(model.left_out)
    stop = stop_reason_of(turns[max(turns)].completion.finish_reason) if turns else "done"
    return Rollout(
        id=rollout_id,
        task_id=task.id,
        messages=messages if spans is None else spans,
        info=info,
        metrics={"limited": float(said["limit"] is not None)},
        usage=usage_of(model),
        stop_reason="step_limit" if said["limit"] is not None else stop,
    )


def failed(rollout_id: str, task: Task, error: AtroposError, model: EngineModel) -> Rollout:
    """The rollout of an exception in the task, or of a process that ended or hung."""
    failure = RolloutFailure(stage="environment", type=type(error).__name__, message=str(error))
    return Rollout(id=rollout_id, task_id=task.id, messages=(), failure=failure, usage=usage_of(model))


def usage_of(model: EngineModel) -> Usage:
    """Of all requests that the sample made to the policy, also of those that are in no message."""
    prompts = [item.generation.prompt_tokens for item in model.exchanges]
    replies = [item.completion.completion_tokens for item in model.exchanges]
    return Usage(
        prompt_tokens=sum(n or 0 for n in prompts) if any(n is not None for n in prompts) else None,
        completion_tokens=sum(n or 0 for n in replies) if any(n is not None for n in replies) else None,
        requests=len(model.exchanges),
    )


def prompt_of(rollouts: Sequence[Rollout]) -> tuple[Message, ...]:
    """The messages before the first reply, where all rollouts that did not fail begin with the same."""
    shared: list[Message] = []
    for place in zip(*(item.messages for item in rollouts if item.failure is None), strict=False):
        first = place[0]
        if first.role == "assistant" or any(item.role != first.role or item.content != first.content for item in place):
            break
        shared.append(first.model_copy(update={"tokens": None}))
    return tuple(shared)


async def role_answer(role: Any, question: Mapping[str, Any]) -> Data:
    """The answer of a role's model to a chat request of the task. It is never trained on."""
    messages = tuple(message_of(item) for item in question.get("messages") or ())
    completions = await role.generate(messages, n=int(question.get("n") or 1), tools=question.get("tools") or None)
    choices: list[Data] = []
    for completion in completions:
        message = completion.message
        choice: Data = {"content": message.text, "finish_reason": finish_of(completion.finish_reason) or "stop"}
        if message.reasoning is not None:
            choice["reasoning"] = message.reasoning
        if message.tool_calls:
            choice["tool_calls"] = [call.model_dump(mode="json") for call in message.tool_calls]
        choices.append(choice)
    return {"choices": choices, "usage": {}}
