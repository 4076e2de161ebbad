"""One rollout while it is played: its messages, tokens, costs and calls, and how it ends."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.finish import StopReason, cut_by, finish_of
from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.domain.rollout import Rollout, RolloutFailure, Stage, Usage
from atropos_cli.domain.task import Task
from atropos_cli.errors import PluginError
from atropos_cli.plugins.errortext import found
from atropos_cli.ports.backend import Completion, Generation
from atropos_cli.ports.environment import Episode
from atropos_cli.redaction import redacted
from atropos_cli.rollout.dispatch import GroupDeadline
from atropos_cli.rollout.prefill import Wishes, wishes
from atropos_cli.rollout.returned import tools_of
from atropos_cli.rollout.stopping import as_failures
from atropos_cli.rollout.systematic import place_of
from atropos_cli.rollout.tokens import TokenTrail
from atropos_cli.rollout.toolcalls import TOOLS, ReadReply, joined, read_reply


def failure(stage: Stage, error: BaseException, owner: Callable[..., Any] | None = None) -> RolloutFailure:
    """The failure record of an exception. owner: the plugin's function that was called."""
    if isinstance(error, GroupDeadline):
        return RolloutFailure(stage="timeout", type="GroupDeadline", message="the group's time was over")
    text = str(error)
    if isinstance(error, PluginError):  # also what an episode asks of a reply may be wrong
        stage = "environment" if stage == "generate" else stage
        text = f"{text}; {error.hint}" if error.hint else text
    failed = RolloutFailure(stage=stage, type=type(error).__name__, message=redacted(text)[:2000])
    return failed if stage == "generate" else failed.at(place_of(error, owner))


class EpisodeState:
    """One rollout while it is played."""

    def __init__(self, number: int, episode: Episode, *, role: str | None = None) -> None:
        self.number = number
        self.role = role
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
        self.tools: tuple[JsonDict, ...] = ()
        """All that were offered so far."""
        self._offered: tuple[JsonDict, ...] = ()
        self._calls = 0
        self._parse_failures: Counter[str] = Counter()

    def asks(self) -> tuple[list[Message], Wishes]:
        """What the next request holds."""
        return self.messages, wishes(self.episode)

    def wishes(self, seed: int | None = None) -> Wishes:
        """What the episode asks of its next reply, which is then read with the tools that were offered."""
        self._offered = tools_of(self.episode)
        self.tools = joined(self.tools, self._offered)
        return wishes(self.episode, seed)

    def fail(self, stage: Stage, error: BaseException, owner: Callable[..., Any] | None = None) -> None:
        self.failure = failure(stage, error, owner)
        self.over = True

    def fail_late(self, error: BaseException) -> None:
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

    def read(self, reply: Message) -> ReadReply:
        """The reply with its calls parsed; what is wrong with them is counted."""
        read = read_reply(reply, self._offered, self._calls)
        self._calls += len(read.message.tool_calls or ())
        self._parse_failures.update(read.failures)
        return read

    def rollout(self, group_id: str, task: Task) -> Rollout:
        """The record of the rollout, which has ended."""
        if self.failure is None:
            try:
                return self._record(group_id, task, self.episode.result(), self.episode.metrics())
            except ValidationError as error:
                self.fail("environment", TypeError(_unfit(error)))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
                self.fail("environment", error)
        return self._record(group_id, task, {}, {})

    def _record(self, group_id: str, task: Task, info: JsonDict, metrics: dict[str, float]) -> Rollout:
        return Rollout(
            id=f"{group_id}/{self.number}",
            task_id=task.id,
            role=self.role,
            messages=tuple(self.messages),
            info=info,
            metrics=metrics,
            usage=Usage(
                prompt_tokens=self.prompt_tokens,
                completion_tokens=self.completion_tokens,
                requests=self.requests,
                retries=self.retries,
            ),
            parse_failures=dict(self._parse_failures) or None,
            stop_reason=None if self.failure else self.stop,
            failure=self.failure,
        )


def _unfit(error: ValidationError) -> str:
    """What is wrong with the report of an episode."""
    first = error.errors(include_url=False)[0]
    method = {"info": "result", "metrics": "metrics"}.get(str(first["loc"][0]), "reset")
    where = ".".join(map(str, first["loc"]))
    return f"{method}() returned what cannot be stored: {where}: {first['msg']}, got {found(first['input'])}"


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
        with as_failures():
            result = state.episode.close()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - too late to matter for the rollout, unless it had succeeded
        state.fail_late(error)
        return None
    return _close_later(state, result) if inspect.isawaitable(result) else None


async def _close_later(state: EpisodeState, closing: Awaitable[Any]) -> None:
    try:
        with as_failures():
            await closing
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        state.fail_late(error)


def with_tools(task: Task, states: list[EpisodeState]) -> Task:
    """The task with the tools that its episodes offered, where readers of groups look for them."""
    tools: tuple[JsonDict, ...] = ()
    for state in states:
        tools = joined(tools, state.tools)
    if not tools or TOOLS in task.info:
        return task
    made: Task = task.replace(info={**task.info, TOOLS: list(tools)})
    return made


def _add(total: int | None, more: int | None) -> int | None:
    if more is None:
        return total
    return more if total is None else total + more
