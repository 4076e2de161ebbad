"""One rollout while it is played, and how it fails."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from atropos_cli.domain.finish import StopReason, cut_by, finish_of
from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.domain.rollout import RolloutFailure, Stage
from atropos_cli.ports.backend import Completion, Generation
from atropos_cli.ports.environment import Episode
from atropos_cli.redaction import redacted
from atropos_cli.rollout.dispatch import GroupDeadline
from atropos_cli.rollout.prefill import Wishes, wishes
from atropos_cli.rollout.systematic import place_of
from atropos_cli.rollout.tokens import TokenTrail


def failure(stage: Stage, error: BaseException, owner: Callable[..., Any] | None = None) -> RolloutFailure:
    """The failure record of an exception. owner: the plugin's function that was called."""
    if isinstance(error, GroupDeadline):
        return RolloutFailure(stage="timeout", type="GroupDeadline", message="the group's time was over")
    failed = RolloutFailure(stage=stage, type=type(error).__name__, message=redacted(str(error))[:2000])
    return failed if stage == "generate" else failed.at(place_of(error, owner))


class EpisodeState:
    """One rollout while it is played."""

    def __init__(self, number: int, episode: Episode) -> None:
        self.number = number
        self.episode = episode
        self.messages: list[Message] = []
        self.trail = TokenTrail()
        self.failure: RolloutFailure | None = None
        self.stop: StopReason | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.requests = 0
        self.retries = 0
        self.over = False

    def asks(self) -> tuple[list[Message], Wishes]:
        """What the next request holds."""
        return self.messages, wishes(self.episode)

    def fail(self, stage: Stage, error: BaseException, owner: Callable[..., Any] | None = None) -> None:
        self.failure = failure(stage, error, owner)
        self.over = True

    def fail_late(self, error: Exception) -> None:
        """A failure of close(): the first failure counts."""
        if self.failure is None:
            self.fail("environment", error)

    def take(self, generation: Generation, completion: Completion, span: TokenSpan | None) -> Message:
        """Append the reply; hang the prompt's tokens on the last message before it."""
        if span is not None and self.messages:
            self.messages[-1] = self.messages[-1].model_copy(update={"tokens": span})
        reply, reason = completion.message, finish_of(completion.finish_reason)
        if reply.finish_reason != reason:
            reply = reply.model_copy(update={"finish_reason": reason})
        self.messages.append(reply)
        self.trail.extend(reply)
        if completion is generation.completions[0]:
            # A prompt that n samples share is paid for once.
            self.prompt_tokens = _add(self.prompt_tokens, generation.prompt_tokens)
        self.completion_tokens = _add(self.completion_tokens, completion.completion_tokens)
        self.stop = "incomplete" if reason is None else cut_by(reason)
        return reply


async def together(coroutines: Iterable[Any]) -> list[Any]:
    """Await together; the first error cancels the rest and is raised as it is. One alone runs in place."""
    pending = list(coroutines)
    if len(pending) < 2:
        return [await coroutine for coroutine in pending]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in pending]
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [task.result() for task in tasks]


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def close_episode(state: EpisodeState) -> Coroutine[Any, Any, None] | None:
    """End the episode; what is left to await of it, for a close() that is asynchronous."""
    try:
        result = state.episode.close()
    except Exception as error:  # noqa: BLE001 - too late to matter for the rollout, unless it had succeeded
        state.fail_late(error)
        return None
    return _close_later(state, result) if inspect.isawaitable(result) else None


async def _close_later(state: EpisodeState, closing: Awaitable[Any]) -> None:
    try:
        await closing
    except Exception as error:  # noqa: BLE001 - as above
        state.fail_late(error)


def _add(total: int | None, more: int | None) -> int | None:
    if more is None:
        return total
    return more if total is None else total + more
