"""The session of `train grpo --async-steps K`: rollouts are made while the optimiser works.

The optimiser runs in a thread of its own; the main thread stays with the rollouts, whose rewards it runs. Before each
step the weights are given to those who sample, who continue with them in the middle of their episodes. So many tasks
are started that, taken in the order in which they come out, none is of weights more than K steps old; rollouts that
took longer than that are left out, and a task that has no others is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from atropos_cli.sdk import ConfigError, ScoredGroup, Task
from atropos_cli.sdk.backends import InferenceBackend
from atropos_cli.sdk.engine import LoopThread, OnFailure, Player, Rolling
from atropos_cli.sdk.training import Trainer, TrainerError, TrainResult
from atropos_training.ahead import Ahead
from atropos_training.handover import SYNC, leave, place_of
from atropos_training.idling import Idling
from atropos_training.keptgroups import KeptGroups
from atropos_training.recording import Recording
from atropos_training.session import TrainSession
from atropos_training.staleness import ages, is_old, without_old
from atropos_training.steporder import StepOrder, StepTasks
from atropos_training.watching import ticker, ticker_of

_GRACE = 20.0
"""Seconds that the optimiser's thread has to end after the second Ctrl-C."""


class AsyncSession(TrainSession):
    """See the module."""

    _copy: Any = None
    _ahead: Ahead | None = None
    _idling: Idling | None = None
    _kept: KeptGroups
    _tasks: StepOrder
    _first = 0
    """The first step that is made of new tasks: earlier ones are in the files."""
    _given: int | None = None
    _started = 0
    _dropped = 0
    _handing: Future[None] | None = None
    _about: Mapping[str, float] = MappingProxyType({})

    # What the engine calls --------------------------------------------------------------------------------------------

    def carry(self, trainer: Trainer) -> TrainResult:
        """See TrainSession; in a thread of its own."""
        self._loop = LoopThread()
        outcome: Future[TrainResult] = Future()

        def work() -> None:
            try:
                result = trainer.train(self.plan, self)
            except KeyboardInterrupt:  # the main thread has raised it, and waits no more
                outcome.cancel()
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        thread = threading.Thread(target=work, name="atropos-optimiser", daemon=True)

        async def over() -> TrainResult:
            thread.start()
            return await asyncio.shield(asyncio.wrap_future(outcome))

        try:
            return self._loop.call(over())
        except KeyboardInterrupt:
            _interrupt(thread, self._loop)
            raise

    def account(self) -> None:
        """See TrainSession; and which side waited for the other."""
        super().account()
        if self._idling is not None and isinstance(self.recording, Recording) and (told := self._idling.total()):
            self.recording.note(f"{told}; {self._dropped} tasks dropped as older than {self.plan.async_steps} steps")

    async def _close(self) -> None:
        if self._ahead is not None:
            await self._ahead.close()
            self._tasks.close()
        if self._handing is not None:
            self._handing.cancel()
        await super()._close()

    # What the trainer calls -------------------------------------------------------------------------------------------

    def _sampled(self, backend: InferenceBackend) -> Any:
        if not _takes_weights(backend):
            return self._model
        self._copy = copy.deepcopy(self._model).eval()
        return self._copy

    def adopt(self, model: Any, tokenizer: Any) -> None:
        """See TrainContext."""
        super().adopt(model, tokenizer)
        if self._in_process and self._backend is not None and not _takes_weights(self._backend):
            raise ConfigError(
                f"backend {self._backend.name!r} cannot take weights while it samples",
                hint="--backend local, or --base-url of a vLLM or SGLang server; or leave out --async-steps",
            )

    def roll(self, places: Sequence[int], *, step: int) -> list[list[ScoredGroup]]:
        """The groups of the tasks that came out next, one list a task; none when the run is asked to stop."""
        if self._player is None or self._order is None or self._loop is None:
            raise TrainerError("roll() needs an environment in the plan and adopt() first")
        if not self._located:
            self._player.recall(self._own, step)
        self._locate(step)
        if self._ahead is None:
            self._begin(step, self._loop, self._player)
        assert self._ahead is not None
        self._hand_over(step)
        began = time.monotonic()
        taken = self._of(step, len(places))
        assert self._idling is not None
        self._idling.waited(time.monotonic() - began)
        if taken is None:
            return []
        tasks, found = taken
        judged = [self._player.judged(groups) for groups in found]
        for place, groups in zip((*tasks.places, *tasks.failed), judged, strict=True):
            self._write(place, groups)
        if self._tasks.of(step) is None:
            self._tasks.write(step, tasks)
        self._player.keep(self._own, step)
        kept = [[without_old(group, step, tasks.most) for group in groups] for groups in judged]
        self._about = ages([group for groups in kept for group in groups], step)
        self._about |= {"async/dropped": float(len(tasks.dropped))}
        self._show(step, [group for groups in kept for group in groups])
        self._tell_skipped()
        return kept + [[] for _ in range(len(places) - len(kept))]

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """See TrainContext; with the age of the step's tokens, and the share of time that each side waited."""
        assert self._idling is not None, "report() before roll()"
        super().report(step, {**metrics, **self._about, **self._idling.step()})

    def _sample(
        self,
        player: Player,
        tasks: Mapping[int, Task],
        on_failure: OnFailure,
        step: int,
        *,
        unless: Callable[[], bool] = lambda: False,
    ) -> dict[int, list[ScoredGroup]] | None:
        """Evaluate with the weights as they are now, while rollouts continue with the same ones."""
        assert self._loop is not None
        self._hand_over(step, wait=True)
        tick = ticker_of(player, self._suites, self.recording, step, len(tasks))
        with contextlib.nullcontext() if self._idling is None else self._idling.beside():
            return self._loop.call_unless(unless, player.roll(tasks, on_failure), tick)

    # Rollouts ---------------------------------------------------------------------------------------------------------

    def _begin(self, step: int, loop: LoopThread, player: Player) -> None:
        """Find the tasks of earlier sessions; start nothing yet."""
        self._kept = KeptGroups(self.folder / "groups.jsonl")
        self._kept.look()
        self._tasks = StepOrder(self.folder, self._kept)
        self._first = self._tasks.begin(step)
        end = None if self.plan.steps is not None or self.tasks is None else self.tasks * self.plan.epochs
        places, slots = self._tasks.places(end), max(2, 2 * player.plan.execution.workers)

        async def make() -> Ahead:
            return Ahead(self._play, places, slots)

        self._ahead = loop.call(make())
        self._idling = Idling(self._ahead)
        if self._given is not None:  # for an evaluation before the first step
            loop.call(self._allow(self._given))

    async def _play(self, place: int) -> Sequence[ScoredGroup]:
        assert self._player is not None
        assert self._order is not None
        if place in self._kept:  # written, and the session ended before its step
            return self._kept.groups(place)
        return await self._player.play(place, self._order.task(place), self._on_failure)

    async def _allow(self, version: int) -> None:
        """Start as many tasks as may be taken before weights of this version are too old."""
        if self._ahead is None:
            return
        steps = version + self.plan.async_steps + 1
        steps = min(steps, self.plan.steps) if self.plan.steps is not None else steps
        allowed = max(0, steps - self._first) * self.plan.prompts_per_step + self._dropped
        self._ahead.allow(allowed - self._started)
        self._started = max(self._started, allowed)

    def _of(self, step: int, size: int) -> tuple[StepTasks, list[Sequence[ScoredGroup]]] | None:
        """What a step is made of: as it was made before, or of the tasks that come out now; None when stopping."""
        assert self._loop is not None
        assert self._player is not None
        if (known := self._tasks.of(step)) is not None:
            return known, [*map(self._kept.groups, known.places), *((),) * len(known.failed)]
        player, ahead = self._player, self._ahead
        assert ahead is not None

        def progress() -> Rolling:
            return replace(player.progress(step, None, size), groups_done=min(size, ahead.ready))

        return self._loop.call_unless(
            lambda: self.stopping, self._collect(step, size), ticker(self.recording, progress)
        )

    async def _collect(self, step: int, size: int) -> tuple[StepTasks, list[Sequence[ScoredGroup]]]:
        assert self._ahead is not None
        most = self.plan.async_steps
        found: list[tuple[int, Sequence[ScoredGroup]]] = []
        dropped: list[int] = []
        while len(found) < size and (played := await self._ahead.take()) is not None:
            place, groups = played
            rollouts = [one for group in groups for one in group.rollouts if one.reward is not None]
            if rollouts and all(is_old(one, step, most) for one in rollouts):
                dropped.append(place)
                self._dropped += 1
                self._ahead.allow(1)
                self._started += 1
            else:
                found.append(played)
        found.sort(key=lambda played: not played[1])
        places = tuple(place for place, groups in found if groups)
        failed = tuple(place for place, groups in found if not groups)
        return StepTasks(places, failed, tuple(dropped), most), [groups for _, groups in found]

    # Weights ----------------------------------------------------------------------------------------------------------

    def _hand_over(self, step: int, *, wait: bool = False) -> None:
        """Give the weights to those who sample. A server takes them while the optimiser continues, but for the first.

        wait: until they are in force.
        """
        assert self._loop is not None
        assert self._backend is not None
        if self._handing is not None and (wait or self._given != step):
            handing, self._handing = self._handing, None
            handing.result()
        if self._given == step:
            return
        backend, first = self._backend, self._given is None
        if self._in_process:
            self._loop.call(backend.refresh(self._renew_copy, version=step))
            self._loop.call(self._in_force(step))
        else:
            folder = place_of(self.folder / SYNC, step)
            leave(folder, self._model, self._tokenizer)

            async def give() -> None:
                await backend.update_weights(str(folder.resolve()), version=step)
                await self._in_force(step)

            self._handing = self._loop.start(give())
            if wait or first:
                self._handing.result()
        self._given = step

    async def _in_force(self, step: int) -> None:
        assert self._backend is not None
        self._backend.weights_version = step
        await self._allow(step)

    def _renew_copy(self) -> None:
        import torch

        with torch.no_grad():
            for theirs, own in zip(self._model.parameters(), self._copy.parameters(), strict=True):
                if theirs.requires_grad:
                    own.copy_(theirs)


def _takes_weights(backend: InferenceBackend) -> bool:
    return type(backend).refresh is not InferenceBackend.refresh


def _interrupt(thread: threading.Thread, loop: LoopThread) -> None:
    """End the optimiser where it is: in a wait for the loop, or between two of its own instructions."""
    loop.soon(lambda: [job.cancel() for job in asyncio.all_tasks()])
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
    with contextlib.suppress(RuntimeError):
        thread.join(_GRACE)
