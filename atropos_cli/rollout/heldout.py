"""Evaluations of a run that pushes its groups: held-out tasks, whenever its trainer has made a number of steps more.

The groups of an evaluation are kept in RUN/evals and pushed nowhere. Meanwhile no group of the run starts, and the
backend keeps the weights that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from atropos_cli.domain.delivery import Delivery
from atropos_cli.domain.group import ScoredGroup, make_group_id
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.rollout import RolloutFailure
from atropos_cli.domain.selection import Selection
from atropos_cli.domain.task import Task
from atropos_cli.errors import AtroposError, UsageError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.groupfile import encode_group
from atropos_cli.io.lost import LostTask
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.environment import Environment
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.dispatch import Dispatcher
from atropos_cli.rollout.episodes import failure
from atropos_cli.rollout.groups import GroupRoller, Run, run_of
from atropos_cli.rollout.pushing import Pushed
from atropos_cli.rollout.report import Examined
from atropos_cli.rollout.roles import Role
from atropos_cli.rollout.stopping import Abort, Draining
from atropos_cli.rollout.tasks import TaskReader

FOLDER = "evals"
_SPLITS = ("test", "valid")
_LOOK_EVERY = 0.2


def held_out_plan(plan: Plan, registry: Registry) -> Plan:
    """Each held-out task once, greedily, with the run's rewards. Raises UsageError where none are held out."""

    def split_of(name: str, dist: str | None, used: str) -> str:
        cls: type[Environment] = registry.find("environment", name, dist=dist).load()
        found = next((split for split in _SPLITS if split in cls.splits and split != used), None)
        if found is None:
            raise UsageError(
                f"--eval-every: environment {name!r} holds out no tasks; its splits: {', '.join(cls.splits)}",
                hint="leave it out; train grpo --eval ENV evaluates on the tasks of another environment",
            )
        return found

    members = []
    for member in plan.mixture:
        ref = member.environment
        members.append(member.replace(split=split_of(ref.name, ref.dist, member.split), group_size=None))
    ref = plan.environment
    found: Plan = plan.replace(
        mixture=tuple(members),
        split=_SPLITS[0] if members else split_of(ref.name, ref.dist, plan.split),
        group_size=1,
        limit=plan.delivery.eval_limit,
        sampling=plan.sampling.replace(temperature=0.0),
        logprobs="off",
        advantage="none",
        selection=Selection(),
        delivery=Delivery(),
    )
    return found


class HeldOut:
    """The evaluations of one session. Errors that end the run are raised by `pushed.held`."""

    def __init__(self, plan: Plan, environment: Environment, rewards: Sequence[Reward], pushed: Pushed) -> None:
        """plan: that of `held_out_plan`, with its environment and rewards."""
        self._plan, self._environment, self._rewards, self._pushed = plan, environment, rewards, pushed
        self._tasks: dict[int, Task] = {}
        self._run: Run | None = None

    async def open(self, dispatcher: Dispatcher, roles: dict[str, Role]) -> None:
        """Open rewards and environment. Requests go through the dispatcher of the run."""
        plan = self._plan
        for reward in self._rewards:
            await reward.open()
        await self._environment.open(workers=plan.execution.workers, seed=plan.seed)
        self._run = run_of(plan, self._environment, self._rewards, dispatcher, roles, ())

    async def follow(self, every: int, folder: Path, done: Callable[[Examined], None]) -> None:
        """Evaluate before the first step, and each time that `every` more are made; until it is cancelled."""
        place = folder / FOLDER
        last = max((_step(path) // every for path in place.glob("step-*.jsonl")), default=-1)
        try:
            await self._read_tasks()
            while True:
                step = self._pushed.step
                if step is not None and step // every > last:
                    async with self._pushed.still():
                        step = self._pushed.step or 0  # newer weights may have come while it waited
                        done(await self._examine(step, place))
                        last = step // every
                elif step is not None:
                    self._pushed.examines = False
                await asyncio.sleep(_LOOK_EVERY)
        except Abort as abort:
            self._pushed.fails(abort.error)
        except AtroposError as error:
            self._pushed.fails(error)
        except Draining:
            return

    async def _read_tasks(self) -> None:
        reader = TaskReader(self._environment, self._plan.split, self._plan.limit)
        while (task := reader.get(len(self._tasks))) is not None:
            self._tasks[len(self._tasks)] = task

    async def _examine(self, step: int, place: Path) -> Examined:
        slots = asyncio.Semaphore(max(2, 2 * self._plan.execution.workers))
        groups: dict[int, tuple[ScoredGroup, ...]] = {}
        lost: list[LostTask] = []

        async def one(index: int, task: Task) -> None:
            async with slots:
                found, failures = await self._roll(index, task)
            if found:
                groups[index] = found
            else:
                kinds = tuple({"stage": reason.stage, "type": reason.type} for reason in failures)
                lost.append(LostTask(index, make_group_id(self._plan.digest, index), task.id, kinds))

        running = [asyncio.create_task(one(index, task)) for index, task in self._tasks.items()]
        try:
            await asyncio.gather(*running)
        finally:
            for job in running:
                job.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return self._keep(step, [group for index in sorted(groups) for group in groups[index]], lost, place)

    def _keep(self, step: int, groups: Sequence[ScoredGroup], lost: Sequence[LostTask], place: Path) -> Examined:
        place.mkdir(exist_ok=True)
        atomic_write(place / f"step-{step}.jsonl", b"".join(encode_group(group) + b"\n" for group in groups))
        return Examined(step, self._plan, groups, lost, place)

    async def _roll(self, index: int, task: Task) -> tuple[tuple[ScoredGroup, ...], list[RolloutFailure]]:
        """The groups of a task; none, and the failures, where no rollout succeeded."""
        assert self._run is not None, "follow() before open()"
        try:
            found = await GroupRoller(self._run.of(task), index).roll(self._environment, task)
        except (Abort, Draining):
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this task's failure
            return (), [failure("environment", error, type(self._environment).roll_group)]
        failures = [one.failure for group in found for one in group.rollouts if one.failure is not None]
        return (() if len(failures) == sum(len(group.rollouts) for group in found) else found), failures


def _step(path: Path) -> int:
    number = path.stem.partition("-")[2]
    return int(number) if number.isdecimal() else -1
