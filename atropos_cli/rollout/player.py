"""Live rollouts for a trainer: environments that share one backend, on an event loop of their own thread.

    player = Player(plan, registry, tell); await player.open(backend); await player.roll({place: task})

The trainer's thread waits while rollouts run, so that nothing changes the weights below them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.rollout import RolloutFailure
from atropos_cli.domain.task import Task
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports import asking
from atropos_cli.ports.backend import InferenceBackend
from atropos_cli.ports.metering import current
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.backends import close_part
from atropos_cli.rollout.baselines import KIND as RAE
from atropos_cli.rollout.baselines import Baselines
from atropos_cli.rollout.components import make_environment
from atropos_cli.rollout.costs import Ledger
from atropos_cli.rollout.dispatch import Dispatcher, EventSink
from atropos_cli.rollout.episodes import failure
from atropos_cli.rollout.groups import GroupRoller, Run, run_of
from atropos_cli.rollout.mixture import Mixture, member_name
from atropos_cli.rollout.report import Rolling
from atropos_cli.rollout.roles import Opening, open_roles
from atropos_cli.rollout.stopping import Abort
from atropos_cli.rollout.systematic import FailureWatch
from atropos_cli.rollout.toolsources import open_sources

OnFailure = Callable[[int, Task, RolloutFailure, str | None], None]
"""Told of each failed rollout, and of a task that failed as a whole (rollout None): place, task, failure, rollout."""


class Player:
    """One plan's environment and rewards, opened; rolls groups with a backend that it does not own."""

    def __init__(self, plan: Plan, registry: Registry, tell: EventSink) -> None:
        self.plan = plan
        self.environment, self.rewards = make_environment(plan, registry)
        self._tell = tell
        self.baselines = Baselines()
        self._registry = registry
        self._roles = contextlib.AsyncExitStack()
        self._run: Run | None = None
        self.ledger: Ledger | None = None
        self._failures = FailureWatch(plan.execution.same_failures)
        self._rolling: set[GroupRoller] = set()
        self._done = [0, 0]  # groups and rollouts of the roll() at hand

    def progress(self, step: int, suite: str | None, total: int) -> Rolling:
        """How far the roll() at hand is."""
        dispatcher = self._run.dispatcher if self._run is not None else None
        groups, rollouts = self._done
        return Rolling(
            step=step,
            suite=suite,
            groups_done=groups,
            groups_total=total,
            rollouts_done=rollouts + sum(roller.over for roller in self._rolling),
            requests_in_flight=dispatcher.in_flight if dispatcher is not None else 0,
            completion_tokens=dispatcher.completion_tokens if dispatcher is not None else 0,
        )

    def rewards_of(self, task: Task) -> Sequence[Reward]:
        """Those that score a task."""
        mixed = self.environment if isinstance(self.environment, Mixture) else None
        return self.rewards if mixed is None else mixed.parts[member_name(task.id)].rewards

    async def open(self, backend: InferenceBackend, copies: Mapping[str, InferenceBackend] | None = None) -> None:
        """Open the rewards and the environment, and get ready to ask the backend.

        copies: opened backends of the roles that copies of the policy play (see RoleRef.refresh).
        """
        asking.current.set({})
        for reward in self.rewards:
            await reward.open()
        plan = self.plan = self.plan.model_copy(update={"model": backend.model or self.plan.model})
        await self.environment.open(workers=plan.execution.workers, seed=plan.seed)
        dispatcher = Dispatcher(backend, plan.execution, self._tell)
        dispatcher.ledger = self.ledger = Ledger(plan)
        try:
            opening = Opening(self._tell, asyncio.Event(), copies or {})
            roles = await open_roles(plan, self._registry, self.ledger, opening, self._roles)
        except Abort as abort:
            raise abort.error from abort
        tools = await open_sources(plan, self._registry, self._roles)
        self._run = run_of(plan, self.environment, self.rewards, dispatcher, roles, tools)

    async def close(self) -> None:
        """Close the environment and the rewards; the backend stays open."""
        if self._run is not None:
            await self._run.dispatcher.close()
            self._run = None
        await self._roles.aclose()
        await close_part(self.environment)
        for reward in self.rewards:
            await close_part(reward)

    def recall(self, folder: Path, step: int) -> None:
        """Before the first roll() of a resumed training: continue with what it had learnt of rewards by then."""
        if self.plan.advantage == RAE:
            self.baselines = Baselines.before(folder, step)

    def keep(self, folder: Path, step: int) -> None:
        """After a step's rollouts: keep what is needed to continue after it."""
        if self.plan.advantage == RAE:
            self.baselines.keep(folder, step)

    async def roll(self, tasks: Mapping[int, Task], on_failure: OnFailure) -> dict[int, list[ScoredGroup]]:
        """The groups of each task by place; an empty list where every rollout failed. Raises AtroposError."""
        self._done = [0, 0]
        current.set(self.ledger)  # of this coroutine's own context: judges of these groups are counted with them
        slots = asyncio.Semaphore(max(2, 2 * self.plan.execution.workers))

        async def one(place: int, task: Task) -> Sequence[ScoredGroup]:
            async with slots:
                return await self._roll(place, task, on_failure)

        running = [asyncio.create_task(one(place, task)) for place, task in tasks.items()]
        try:
            found = await asyncio.gather(*running)
            # In the order of the tasks, not of their ends: the averages are the same in every run.
            return {place: self.judged(groups) for place, groups in zip(tasks, found, strict=True)}
        except Abort as abort:
            raise abort.error from abort
        finally:
            for job in running:
                job.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def play(self, place: int, task: Task, on_failure: OnFailure) -> Sequence[ScoredGroup]:
        """The groups of one task, before they are judged; none where every rollout failed. Raises AtroposError."""
        current.set(self.ledger)
        try:
            return await self._roll(place, task, on_failure)
        except Abort as abort:
            raise abort.error from abort

    def judged(self, groups: Sequence[ScoredGroup]) -> list[ScoredGroup]:
        """The groups with the advantages that depend on earlier ones, which count in the order of these calls."""
        judged = self.baselines.judged(tuple(groups), self.plan.advantage)
        for group in judged:
            self.baselines.add(group)
        return list(judged)

    async def _roll(self, place: int, task: Task, on_failure: OnFailure) -> Sequence[ScoredGroup]:
        assert self._run is not None, "roll() before open()"
        roller = GroupRoller(self._run.of(task), place)
        self._rolling.add(roller)
        try:
            groups = await roller.roll(self.environment, task)
        except Exception as error:  # noqa: BLE001 - a plugin's error is this task's failure
            reason = failure("environment", error, type(self.environment).roll_group)
            on_failure(place, task, reason, None)
            self._failures.fail(reason, task.id)
            return ()
        finally:
            self._rolling.discard(roller)
            self._done[0] += 1
            self._done[1] += roller.over
        alive = False
        for group in groups:
            for rollout in group.rollouts:
                alive = alive or rollout.failure is None
                if rollout.failure is not None:
                    on_failure(place, task, rollout.failure, rollout.id)
            self._failures.look(group.rollouts)
        return groups if alive else ()
