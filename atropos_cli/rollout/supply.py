"""Which task a run starts next: in their order, by a curriculum, and for how many rollouts in all.

With --adaptive a limit of N tasks means N times group_size rollouts. A group that is decided early costs less, and the
rest goes to further tasks: a task starts as long as its whole group has room, so that the number of tasks depends on
the results alone and not on which groups were faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.selection import Selection
from atropos_cli.domain.task import Task
from atropos_cli.errors import UsageError
from atropos_cli.ports.environment import Environment
from atropos_cli.rollout.curriculum import Curriculum, Pool, Reading, success_of
from atropos_cli.rollout.mixture import Mixture, member_name
from atropos_cli.rollout.resume import DoneTasks
from atropos_cli.rollout.returned import task_of, tasks_of
from atropos_cli.rollout.stopping import as_failures
from atropos_cli.rollout.tasks import Shard, TaskReader
from atropos_cli.stats.metrics import full_marks


class CurriculumReader:
    """A TaskReader whose tasks a curriculum chooses. cycle: of a training: tasks come again, ordered by this seed."""

    def __init__(
        self,
        environment: Environment,
        plan: Plan,
        folder: Path | None,
        *,
        cycle: str | None = None,
        accept: Reading = lambda task: True,
    ) -> None:
        self._environment = environment
        self._plan = plan
        self._marks = marks_of(plan)
        if isinstance(environment, Mixture):
            names, weights, sources = list(environment.parts), environment.weights, environment.sources()
        else:
            names, weights, sources = [environment.name], [1.0], [tasks_of(environment, plan.split)]
        most = plan.limit if cycle is not None else None
        lists = [source if isinstance(source, Sequence) else list(source) for source in sources]
        choice = plan.selection
        self.pools = [
            Pool(name, tasks, choice, most=most, cycle=cycle, accept=accept)
            for name, tasks in zip(names, lists, strict=True)
        ]
        lengths = [pool.length for pool in self.pools]
        endless = None in lengths
        self.available = None if endless or choice.curriculum_replay else sum(length or 0 for length in lengths)
        default = environment.default_limit if endless else None
        bounds = [bound for bound in (self.available, plan.limit or default) if bound is not None]
        self.total = min(bounds) if bounds and cycle is None else None
        fsync = plan.execution.fsync
        self.curriculum = Curriculum(self.pools, weights, choice, seed=plan.seed, folder=folder, fsync=fsync)

    def get(self, index: int) -> Task | None:
        """The task at a place, None behind the last."""
        if self.total is not None and index >= self.total:
            return None
        found = self.curriculum.pick(index)
        if found is None:
            return None
        member, place = found
        task = self.pools[member].source[place]
        if isinstance(self._environment, Mixture):
            return self._environment.task_of(member, task)
        return task_of(self._environment, task)

    def outcome(self, index: int, task: Task | None, groups: Sequence[ScoredGroup]) -> None:
        """The groups of a task, before they are written."""
        marks = self._marks[member_name(task.id) if task is not None and self._plan.mixture else ""]
        self.curriculum.outcome(index, success_of(groups, marks))


def marks_of(plan: Plan) -> dict[str, float]:
    """Full marks by member; those of an environment alone under ""."""
    owners = {"": plan.rewards, **{member.name: member.rewards for member in plan.mixture}}
    return {name: full_marks(reward.weight for reward in rewards) for name, rewards in owners.items()}


def check_whole(choice: Selection) -> None:
    """Raises UsageError for a choice of tasks that shards cannot make."""
    if choice.curriculum is not None or choice.adaptive:
        name = "--curriculum" if choice.curriculum is not None else "--adaptive"
        raise UsageError(
            f"{name} goes by the results of the whole run, and a shard knows only its own",
            hint=f"drop {name}, or make the run in one piece",
        )


class Supply:
    """Hands out the tasks of a run."""

    def __init__(self, environment: Environment, plan: Plan, folder: Path | None) -> None:
        if plan.execution.shard is not None:
            check_whole(plan.selection)
        self._shard = Shard(plan.execution.shard)
        self.reader: TaskReader | CurriculumReader = (
            TaskReader(environment, plan.split, plan.limit)
            if plan.selection.curriculum is None
            else CurriculumReader(environment, plan, folder)
        )
        self._room = plan.most_rollouts
        self._budget: int | None = None
        if plan.selection.adaptive and self.reader.total is not None and self.reader.total != self.reader.available:
            self._budget = self.reader.total * self._room
            self.reader.total = self.reader.available
        self.total = self._shard.size(self.reader.total)
        self.index = 0

    def begin(self, done: DoneTasks) -> None:
        """Go to the first task that is not done."""
        self._done = done
        if isinstance(self.reader, CurriculumReader):
            curriculum = self.reader.curriculum
            for index in range(curriculum.decided):
                if index in done:
                    curriculum.known(index)
        self._go_to(0)

    def advance(self) -> None:
        """Go to the next one."""
        self._go_to(self.index + 1)

    def _go_to(self, index: int) -> None:
        self.index = self._shard.next_index(self._done.next_open, index, self.reader.total)

    @property
    def ended(self) -> bool:
        """Is there no task at this index? Without a known number, reading it shows."""
        return self.reader.total is not None and self.index >= self.reader.total

    def waits(self, rollouts: int, open_groups: int) -> bool:
        """Does the next task have to wait for the groups that are open? Without any, it is the end."""
        if self._budget is not None and rollouts + (open_groups + 1) * self._room > self._budget:
            return True
        return isinstance(self.reader, CurriculumReader) and not self.reader.curriculum.ready(self.index)

    def task(self) -> Task | None:
        """The task at the index, None behind the last."""
        with as_failures():
            return self.reader.get(self.index)

    def outcome(self, index: int, task: Task | None, groups: Sequence[ScoredGroup] = ()) -> None:
        """The groups of a task, none where all failed; to be called before they are written."""
        if isinstance(self.reader, CurriculumReader):
            self.reader.outcome(index, task, groups)

    def close(self) -> None:
        """Close the curriculum's file."""
        if isinstance(self.reader, CurriculumReader):
            self.reader.curriculum.close()
