"""One sample of a task: its solver, its limits and its scorers, in the contexts that inspect makes for them.

Loaded by `worker` under the task's own Python. It follows what inspect 0.3.285 does for a sample of `inspect eval`
(`inspect_ai/_eval/task/run.py`), without its log, its display and its retries.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from copy import deepcopy
from typing import Any

SANDBOXES = ("local",)
MOST_INPUT = 8_000_000
"""Characters."""


class Running:
    """A task that was made, ready for its samples."""

    def __init__(self, task: Any, engine: Any) -> None:
        from inspect_ai._eval.context import init_eval_context, init_task_context
        from inspect_ai._eval.task.run import resolve_plan
        from inspect_ai.model import GenerateConfig
        from inspect_ai.solver._fork import set_task_generate

        self._task = task
        self._engine = engine
        check_sandbox(task.sandbox)
        self._samples = list(task.dataset)
        for place, item in enumerate(self._samples):
            if item.id is None:
                item.id = place + 1
        self._plan = resolve_plan(task, None)
        self._names = scorer_names(task)
        self._model, self._roles = engine.models()
        config = GenerateConfig(**task.config.model_dump(exclude_none=True)) if task.config else GenerateConfig()
        init_eval_context("warning", None, None)
        init_task_context(self._model, self._playing(()), config, task.approval)
        self._config = config
        set_task_generate(self._generate)

    def _playing(self, given: Sequence[str]) -> dict[str, Any]:
        """The models of roles: the task's own, but for those that the run was given a model for."""
        ours = {name: self._roles[name] for name in given if name in self._roles}
        return {**self._roles, **(self._task.model_roles or {}), **ours}

    def ids(self) -> list[str]:
        """Of the samples, in order; unique."""
        made, seen = [], set()
        for place, item in enumerate(self._samples):
            name = str(item.id) if str(item.id) not in seen else f"{item.id}#{place}"
            seen.add(name)
            made.append(name)
        return made

    def inputs(self) -> list[list[dict[str, Any]]] | None:
        """What the samples begin with, before a solver adds to it; None where that is too much to send at once."""
        from inspect_ai._eval.task.util import sample_messages

        if sum(len(str(item.input)) for item in self._samples) > MOST_INPUT:
            return None
        try:
            return [[self._engine.to_openai(message) for message in sample_messages(item)] for item in self._samples]
        except TypeError:
            return None  # such as sounds, which fail the rollouts that send them

    async def _generate(self, state: Any, tool_calls: Any = "loop", **kwargs: Any) -> Any:
        from inspect_ai._eval.task.generate import task_generate
        from inspect_ai._util.notgiven import NOT_GIVEN

        return await task_generate(
            model=self._model,
            state=state,
            tool_calls=tool_calls,
            cache=kwargs.pop("cache", False) or NOT_GIVEN,
            config=self._config.merge(kwargs),
        )

    def _state(self, item: Any, epoch: int) -> Any:
        from inspect_ai._eval.task.util import sample_messages
        from inspect_ai.model import ModelName
        from inspect_ai.scorer import Target
        from inspect_ai.solver import TaskState

        return TaskState(
            model=ModelName(self._model),
            sample_id=item.id,
            epoch=epoch,
            input=item.input,
            target=Target(item.target),
            choices=item.choices,
            messages=sample_messages(item),
            message_limit=self._task.message_limit,
            token_limit=self._task.token_limit,
            metadata=deepcopy(item.metadata) if item.metadata else {},
        )

    async def play(self, index: int, epoch: int, roles: Sequence[str]) -> dict[str, Any]:
        """The sample, solved and scored. roles: those that have a model in the run."""
        from inspect_ai.log._transcript import Transcript, init_transcript
        from inspect_ai.model._model import (
            init_model_roles,
            init_model_usage,
            init_role_usage,
            init_sample_model_data,
        )
        from inspect_ai.scorer import Target
        from inspect_ai.scorer._score import init_scoring_context
        from inspect_ai.solver._task_state import sample_state, set_sample_state
        from inspect_ai.util._store import init_subtask_store

        item = deepcopy(self._samples[index])
        state = self._state(item, epoch)
        transcript = Transcript(log_model_api=False)
        init_model_roles(self._playing(roles))
        init_model_usage()
        init_role_usage()
        init_sample_model_data()
        set_sample_state(state)
        init_transcript(transcript)
        init_subtask_store(state.store)
        if self._task.scorer:
            init_scoring_context(self._task.scorer, Target(item.target))
        async with AsyncExitStack() as stack:
            active = await stack.enter_async_context(self._active(item, state, transcript))
            sandbox = item.sandbox or self._task.sandbox
            if sandbox is not None:
                check_sandbox(sandbox)
                await stack.enter_async_context(self._sandbox(item))
            try:
                state, limit = await self._solve(state, active)
                scores = await self._score(item, state)
            finally:
                await self._clean_up(sample_state() or state)
        return {
            "messages": self._engine.ending(state.messages),
            "scores": {name: plain(score) for name, score in scores.items()},
            "limit": limit,
            "target": item.target,
            "choices": item.choices,
        }

    def _active(self, item: Any, state: Any, transcript: Any) -> Any:
        from inspect_ai.log._samples import active_sample

        return active_sample(
            task=self._task.name,
            log_location="",
            model=str(state.model),
            sample=item,
            epoch=state.epoch,
            message_limit=state.message_limit,
            token_limit=state.token_limit,
            cost_limit=None,
            time_limit=self._task.time_limit,
            working_limit=self._task.working_limit,
            fails_on_error=True,
            transcript=transcript,
            eval_id="",
            sample_uuid=state.uuid,
        )

    def _sandbox(self, item: Any) -> Any:
        from inspect_ai._eval.task.sandbox import sandboxenv_context

        return sandboxenv_context(self._task.name, self._task.sandbox, None, True, item)

    async def _solve(self, state: Any, active: Any) -> tuple[Any, str | None]:
        """The state after the solver, and the kind of limit that ended it. A sample that met a limit is scored."""
        import anyio
        from inspect_ai._util.exception import TerminateSampleError
        from inspect_ai._util.working import init_sample_working_time
        from inspect_ai.solver._task_state import sample_state, set_sample_state
        from inspect_ai.util import LimitExceededError
        from inspect_ai.util._anyio import inner_exception
        from inspect_ai.util._limit import monitor_working_limit

        limit: str | None = None
        cancelled: BaseException | None = None
        try:
            with ExitStack() as limits:
                init_sample_working_time(time.monotonic())
                self._limit(limits, state)

                async def run(group: Any) -> None:
                    nonlocal state, limit, cancelled
                    try:
                        active.start(group)
                        if self._task.working_limit is not None:
                            monitor_working_limit()
                        state = await self._plan(state, self._generate)
                    except anyio.get_cancelled_exc_class() as error:
                        if active.limit_exceeded_error is None:
                            cancelled = error
                            raise
                        state = sample_state() or state
                        limit = active.limit_exceeded_error.type
                    finally:
                        group.cancel_scope.cancel()

                try:
                    async with anyio.create_task_group() as group:
                        group.start_soon(run, group)
                    if cancelled is not None:  # by no one out here: the group would have passed that on
                        raise RuntimeError("the solver was cancelled, and by no limit of inspect's") from cancelled
                except Exception as error:
                    raise inner_exception(error) from error
        except LimitExceededError as error:
            state, limit = sample_state() or state, error.type
        except TerminateSampleError:
            state, limit = sample_state() or state, "operator"
        state.completed = True
        set_sample_state(state)
        return state, limit

    def _limit(self, limits: ExitStack, state: Any) -> None:
        from inspect_ai.util import time_limit, working_limit
        from inspect_ai.util._limit import turn_limit

        for limit in (
            state._token_limit,
            state._message_limit,
            turn_limit(self._task.turn_limit),
            time_limit(self._task.time_limit),
            working_limit(self._task.working_limit),
        ):
            limits.enter_context(limit)

    async def _score(self, item: Any, state: Any) -> dict[str, Any]:
        """By name. Half of the time limit is left for it, as in inspect."""
        from inspect_ai.scorer import Target
        from inspect_ai.util import time_limit

        if state.scores is None:
            state.scores = {}
        limit = self._task.time_limit
        with time_limit(limit / 2 if limit else None):
            for scorer, name in zip(self._task.scorer or (), self._names, strict=False):
                score = await scorer(state, Target(item.target))
                if score is not None:
                    state.scores[name] = score
        return {**{name: state.scores[name] for name in self._names if name in state.scores}, **state.scores}

    async def _clean_up(self, state: Any) -> None:
        """Always, and an exception of it costs no sample, as in inspect."""
        if self._task.cleanup is None:
            return
        import anyio

        with anyio.CancelScope(shield=True):
            try:
                await self._task.cleanup(state)
            except Exception:  # noqa: BLE001 - the sample is scored by now
                traceback.print_exc()


def scorer_names(task: Any) -> list[str]:
    """Of its scorers, in order, as in inspect's logs."""
    from inspect_ai.scorer._scorer import unique_scorer_name

    names: list[str] = []
    for scorer in task.scorer or ():
        names.append(unique_scorer_name(scorer, names))
    return names


def plain(score: Any) -> dict[str, Any]:
    """A score as data."""
    made = {"value": score.value}
    if score.answer is not None:
        made["answer"] = score.answer
    if score.explanation:
        made["explanation"] = score.explanation
    return made


def check_sandbox(sandbox: Any) -> None:
    """Raises RuntimeError for a sandbox that is more than a folder of this machine."""
    kind = getattr(sandbox, "type", sandbox)
    if kind is not None and kind not in SANDBOXES:
        failed = RuntimeError(f"the task runs tools in a sandbox of the kind {kind}")
        failed.hint = "tasks without a sandbox, or with the sandbox local, run here"  # type: ignore[attr-defined]
        raise failed
