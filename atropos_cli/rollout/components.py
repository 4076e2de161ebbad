"""Open the parts of a run in order, and close them in reverse whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.domain.plan import Plan
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports import asking
from atropos_cli.ports.backend import InferenceBackend
from atropos_cli.ports.environment import Environment
from atropos_cli.ports.metering import current
from atropos_cli.ports.reward import Reward
from atropos_cli.ports.writer import Writer
from atropos_cli.rollout.backends import close_part, make_backend, open_backend
from atropos_cli.rollout.costs import Ledger, check_limit
from atropos_cli.rollout.dispatch import Dispatcher
from atropos_cli.rollout.heldout import HeldOut, held_out_plan
from atropos_cli.rollout.mixture import made_environment, mixture_of
from atropos_cli.rollout.pushing import Pushed
from atropos_cli.rollout.references import component_rewards, environment_rewards, reward_objects
from atropos_cli.rollout.replycache import ReplyCache, cache_folder, identity
from atropos_cli.rollout.report import Examined
from atropos_cli.rollout.roles import Opening, Role, described, open_roles
from atropos_cli.rollout.stopping import ended_by
from atropos_cli.rollout.toolsources import OpenSource, open_sources


@dataclass(slots=True)
class Parts:
    """The open parts of a run; `plan` has the served model's name filled in."""

    plan: Plan
    environment: Environment
    backend: InferenceBackend
    writer: Writer
    rewards: list[Reward]
    dispatcher: Dispatcher
    ledger: Ledger
    roles: dict[str, Role]
    tools: tuple[OpenSource, ...] = ()
    pushed: Pushed | None = None
    held_out: HeldOut | None = None
    at_end: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    """Closes with them."""

    def fields(self) -> dict[str, Any]:
        """The part of a RunSummary that they report."""
        roles = described(self.roles, self.plan.model)
        return {"backend": self.backend.describe(), "roles": roles, **self.ledger.fields()}

    def examine(self, folder: Path | None, done: Callable[[Examined], None]) -> None:
        """Evaluate held-out tasks while the run goes, if that is asked for."""
        every = self.plan.delivery.eval_every
        if self.held_out is not None and folder is not None and every is not None:
            self.at_end.callback(asyncio.create_task(self.held_out.follow(every, folder, done)).cancel)

    def most(self, bound: int) -> int:
        """How many groups may be open; none more while a trainer has enough to do."""
        return 0 if self.pushed is not None and self.pushed.held else bound


@contextlib.asynccontextmanager
async def open_parts(
    plan: Plan,
    registry: Registry,
    on_event: Callable[[str, str], None],
    stop: asyncio.Event,
    *,
    to_stdout: bool = False,
) -> AsyncIterator[Parts]:
    """Make and open backend and environment, make the writer. Raises AtroposError, and Draining
    when it is stopped meanwhile; closes what it opened."""
    environment, rewards = make_environment(plan, registry)
    writer_class = registry.find("writer", "stdout" if to_stdout else plan.writer.name).load()
    writer: Writer = writer_class(writer_class.Config())
    pushed = None if plan.delivery.to is None else Pushed(writer, plan, environment.name, on_event)
    writer = pushed or writer
    backend = make_backend(plan, registry)
    check_limit(plan)
    ledger = Ledger(plan)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(ledger.close)
        stack.callback(current.reset, current.set(ledger))
        stack.callback(asking.current.reset, asking.current.set({}))
        stack.push_async_callback(close_part, backend)
        async with ended_by(stop):
            await open_backend(backend, plan, on_event, stop)
            ledger.check(backend)
            roles = await open_roles(plan, registry, ledger, Opening(on_event, stop), stack)
            tools = await open_sources(plan, registry, stack)
            for reward in rewards:
                stack.push_async_callback(close_part, reward)
                await reward.open()
            stack.push_async_callback(close_part, environment)
            await environment.open(workers=plan.execution.workers, seed=plan.seed)
        dispatcher = Dispatcher(backend, plan.execution, on_event)
        stack.push_async_callback(dispatcher.close)
        dispatcher.ledger = ledger
        if (folder := cache_folder(plan)) is not None:
            dispatcher.cache = ReplyCache(folder, await identity(backend, plan), plan.execution.cache_size)
            stack.callback(dispatcher.cache.close)
            if dispatcher.cache.usable:
                told_by = dispatcher.cache.identity["known_by"]
                on_event("cache", f"replies are kept in {folder}, told apart by {told_by}")
        stack.callback(writer.close)
        plan = plan.model_copy(update={"model": backend.model or plan.model})
        if pushed is not None:
            pushed.wakes(dispatcher.demand_changed.set)
            stack.callback(pushed.follow(backend).cancel)
        parts = Parts(plan, environment, backend, writer, rewards, dispatcher, ledger, roles, tools, pushed)
        parts.at_end = stack
        if pushed is not None and plan.delivery.eval_every is not None:
            parts.held_out = await _held_out(parts, registry, stop)
        yield parts
        if pushed is not None:
            await pushed.flush(stop)


async def _held_out(parts: Parts, registry: Registry, stop: asyncio.Event) -> HeldOut:
    assert parts.pushed is not None
    plan = held_out_plan(parts.plan, registry)
    environment, rewards = make_environment(plan, registry)
    found = HeldOut(plan, environment, rewards, parts.pushed)
    for reward in rewards:
        parts.at_end.push_async_callback(close_part, reward)
    parts.at_end.push_async_callback(close_part, environment)
    async with ended_by(stop):
        await found.open(parts.dispatcher, parts.roles)
    return found


def make_environment(plan: Plan, registry: Registry) -> tuple[Environment, list[Reward]]:
    """The plan's environment and its rewards, options checked; not opened yet. A mixture has its members' rewards."""
    if plan.mixture:
        mixture = mixture_of(plan, registry)
        return mixture, [reward for part in mixture.parts.values() for reward in part.rewards]
    environment = made_environment(plan, registry)
    own = reward_objects(environment_rewards(plan.environment, registry))
    return environment, component_rewards(plan.rewards, own, registry)
