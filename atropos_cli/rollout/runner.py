"""Execute a plan: open the parts, keep the workers busy, write every finished group, stop cleanly.

    run_gen(plan) -> open environment, backend, writer -> skip what is done -> roll groups -> summary

Ctrl-C or SIGTERM once: no new groups, running ones get `drain` seconds, then the run ends resumable.
Twice: at once. kill -9: the next --resume finds whole tasks only.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from pathlib import Path

from atropos_cli.domain.group import ScoredGroup, make_group_id
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.run import RunState, RunSummary
from atropos_cli.domain.task import Task
from atropos_cli.errors import AtroposError, DataError, ExitCode, RunFailed
from atropos_cli.io.git import git_commit
from atropos_cli.io.lost import RunFacts
from atropos_cli.io.rundir import RunDir, check_same_plan, holds_run, open_run, read_plan
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.environment import Environment
from atropos_cli.rollout.components import Parts, open_parts
from atropos_cli.rollout.dispatch import Dispatcher
from atropos_cli.rollout.episodes import failure
from atropos_cli.rollout.groups import GroupRoller, Run, run_of
from atropos_cli.rollout.loopthread import STUCK, LoopThread
from atropos_cli.rollout.report import Reporter, SilentReporter, Snapshot
from atropos_cli.rollout.resume import DoneTasks, doubled_group
from atropos_cli.rollout.sessions import RunTotals, Sessions, recover
from atropos_cli.rollout.stopping import Abort, Draining, leave, stopped_by_signals
from atropos_cli.rollout.supply import Supply
from atropos_cli.rollout.systematic import FailureWatch
from atropos_cli.rollout.tasks import most_open_groups
from atropos_cli.rollout.telling import Telling

_SNAPSHOT_EVERY = 0.5
_SUMMARY_EVERY = 10.0


def run_gen(
    plan: Plan,
    *,
    folder: Path | None,
    registry: Registry,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> RunSummary:
    """Generate the plan's groups into a run folder (None: to standard output) and return the summary.

    Raises AtroposError for what ends the whole run; it can then be resumed. The summary's state is "interrupted"
    after Ctrl-C or SIGTERM, and "failed" when more rollouts failed than the plan allows or none succeeded.
    """
    run_dir = None if folder is None else open_run(folder, resume=resume, overwrite=overwrite)
    loop = LoopThread()
    try:
        runner = Runner(plan, run_dir, registry, reporter or SilentReporter())
        loop.on_stuck = runner.give_up
        with stopped_by_signals(lambda: loop.soon(runner.on_signal), lambda: runner.drain):
            return loop.call(runner.run())
    finally:
        loop.close()
        if run_dir is not None:
            run_dir.close()


class Runner:
    """One session of executing a plan."""

    def __init__(self, plan: Plan, run_dir: RunDir | None, registry: Registry, reporter: Reporter) -> None:
        self.plan = plan
        self.run_dir = run_dir
        self.registry = registry
        self.reporter = reporter
        self.whole = RunTotals()
        self.totals = self.whole.totals
        self.done = DoneTasks()
        telling = Telling(reporter, run_dir, registry)
        self._event, self._observe = telling.event, telling.observe
        self.failures = FailureWatch(plan.execution.same_failures)
        self.supply: Supply | None = None
        self.resumed = 0
        self.total: int | None = None
        self.started_at = time.monotonic()
        self.dispatcher: Dispatcher | None = None
        self._parts: Parts | None = None
        self._run: Run | None = None
        self._stop = asyncio.Event()
        self._signals = 0
        self._error: AtroposError | BrokenPipeError | None = None
        self._bug: BaseException | None = None
        self._open: dict[asyncio.Task[None], int] = {}
        self._starting: set[int] = set()
        self._rolling: set[GroupRoller] = set()

    async def run(self) -> RunSummary:
        """Open, roll, close; always leaves a summary behind."""
        if self.plan.model is not None:
            self._check_plan()
        try:
            parts_of = open_parts(self.plan, self.registry, self._event, self._stop, to_stdout=self.run_dir is None)
            async with parts_of as parts:
                if await self._begin(parts):
                    await self._roll_all(parts)
        except (Abort, Draining) as end:  # Draining: a signal came before the parts were open
            self._error = end.error if isinstance(end, Abort) else None
        return self._end()

    @property
    def drain(self) -> float:
        """Seconds that groups get to end after a signal; none are running while models are loaded."""
        return 0.0 if self._run is None else self.plan.execution.drain

    async def _begin(self, parts: Parts) -> bool:
        """Fix the model in the plan, find what is done, and only then write anything. False: stopped meanwhile."""
        self._parts = parts
        self.plan = parts.plan
        plan, digest = self.plan, self.plan.digest
        self._check_plan()
        folder = None if self.run_dir is None else self.run_dir.folder
        self.supply = await LoopThread.in_callers_place(lambda: Supply(parts.environment, plan, folder))
        parts.at_end.callback(self.supply.close)
        written = 0
        for index in parts.writer.open(folder, prefix=digest[:10], fsync=plan.execution.fsync):
            written += 1
            if not self.done.add(index):
                raise doubled_group(folder, make_group_id(digest, index))
        self.resumed = self.done.count
        if folder is not None and not await self._recover(folder, parts, written):
            return False
        self.total = self.supply.total
        self.supply.begin(self.done)
        if self.run_dir is not None:
            self.run_dir.write_plan(plan)
            attempt, done = self.run_dir.attempt, self.done.count
            self.run_dir.log("started", attempt=attempt, done=done, total=self.total, git_commit=git_commit())
        self.dispatcher = parts.dispatcher
        parts.ledger.on_reached = self._stop.set
        self._run = run_of(plan, parts.environment, parts.rewards, parts.dispatcher, parts.roles, parts.tools)
        self.reporter.started(plan, self.total, self.done.count)
        parts.examine(folder, self.reporter.examined)
        self._observe("atropos_run_started", plan=plan, folder=None if folder is None else str(folder))
        # What is alive now stays alive: the collector need not look at it again for every group.
        gc.collect()
        gc.freeze()
        return True

    def _check_plan(self) -> None:
        if self.run_dir is not None and (path := self.run_dir.folder / "plan.json").exists():
            check_same_plan(read_plan(path), self.plan, self.run_dir.folder)

    async def _recover(self, folder: Path, parts: Parts, written: int) -> bool:
        """Take over what earlier sessions counted; False when a signal came first: a large file may have to be read."""
        facts = RunFacts(parts.environment.name, self.plan.group_size, self.plan.digest[:10])
        try:
            self.whole = await asyncio.to_thread(
                recover, folder, parts.writer.filename, facts, written, self.done.__contains__, self._stop.is_set
            )
        except InterruptedError:
            return False
        self.totals = self.whole.totals
        self.whole.earlier.usage = parts.ledger.keep_in(folder, self.whole.earlier.usage)
        if written:
            with contextlib.suppress(DataError):  # so that a kill soon after need not read it all again
                self.whole.save(self._session())
        if self.whole.unknown:
            text = f"the summary leaves out {self.whole.unknown} groups of earlier sessions: writer "
            self._event("uncounted", f"{text}{parts.writer.name!r} keeps no file that can be read here")
        return True

    async def _roll_all(self, parts: Parts) -> None:
        watcher = asyncio.create_task(self._watch())
        try:
            await self._pump(parts)
            await self._drain()
        finally:
            for task in (watcher, *self._open):
                task.cancel()
            if self._open:
                await asyncio.wait(self._open)
            gc.unfreeze()

    async def _pump(self, parts: Parts) -> None:
        """Open a group whenever a worker would be idle otherwise. Where no task is left, no money is missing."""
        dispatcher, workers = parts.dispatcher, self.plan.execution.workers
        bound = most_open_groups(parts.environment, workers, self.plan.group_size)
        supply = self.supply
        assert supply is not None
        while not self._stop.is_set() and not supply.ended:
            room = parts.ledger.room_for_group(len(self._open))
            room = room and not supply.waits(self.totals.rollouts_without(supply.index), len(self._open))
            if not room and not self._open:
                return
            if not room or len(self._open) >= parts.most(bound) or dispatcher.demand + len(self._starting) >= workers:
                dispatcher.demand_changed.clear()
                await dispatcher.demand_changed.wait()
                continue
            index = supply.index
            try:
                task = supply.task()
            except AtroposError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error, for this one task only
                self._fail_group(index, None, error)
                if supply.reader.total is None:
                    return
            else:
                if task is None:
                    return
                self._start(parts.environment, index, task)
            supply.advance()
            await asyncio.sleep(0)

    def _start(self, environment: Environment, index: int, task: Task) -> None:
        self._starting.add(index)
        self._open[running := asyncio.create_task(self._roll(environment, index, task))] = index
        running.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(self._open.pop(task))
        assert self.dispatcher is not None
        self.dispatcher.demand_changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._abort(error)

    async def _roll(self, environment: Environment, index: int, task: Task) -> None:
        """One task: roll its groups, write them together. What is not the run's end is this task's failure."""
        assert self._run is not None and self._parts is not None  # noqa: PT018
        roller = GroupRoller(self._run.of(task), index)
        roller.on_first_request = lambda: self._starting.discard(index)
        self._rolling.add(roller)
        try:
            with self._parts.ledger.group():
                groups = await roller.roll(environment, task)
        except (Abort, Draining, asyncio.CancelledError):
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this group's failure
            self._fail_group(index, task, error)
            return
        finally:
            self._rolling.discard(roller)
        self._write(index, task, groups)

    def _write(self, index: int, task: Task, groups: tuple[ScoredGroup, ...]) -> None:
        """Write the groups, or only their failures when no rollout of the task succeeded."""
        assert self._parts is not None and self.supply is not None  # noqa: PT018
        failed = [(r.id, r.failure) for group in groups for r in group.rollouts if r.failure is not None]
        lost = bool(failed) and len(failed) == sum(len(group.rollouts) for group in groups)
        if self.run_dir is not None:
            for rollout, reason in failed:
                self.run_dir.failure(groups[-1].group_id, task.id, reason, rollout, lost=lost)
        self.supply.outcome(index, task, groups)
        if lost:
            self.totals.lose(index, [f"{reason.stage}:{reason.type}" for _, reason in failed])
            self.failures.look(rollout for group in groups for rollout in group.rollouts)
            return
        groups = self.totals.baselines.judged(groups, self.plan.advantage)
        self._parts.writer.write(groups)
        self.done.add(index)
        self.totals.write(index, groups)
        for group in groups:
            self._observe("atropos_group_scored", plan=self.plan, group=group)
            self.failures.look(group.rollouts)

    def _fail_group(self, index: int, task: Task | None, error: BaseException) -> None:
        assert self._run is not None
        reason = failure("environment", error, type(self._parts.environment).roll_group if self._parts else None)
        self.totals.lose(index, [f"{reason.stage}:{reason.type}"] * self.plan.group_size)
        if self.supply is not None:
            self.supply.outcome(index, task)
        if self.run_dir is not None:
            group_id = make_group_id(self._run.digest, index)
            self.run_dir.failure(group_id, task.id if task else None, reason, None)
        try:
            self.failures.fail(reason, task.id if task else str(index))
        except RunFailed as many:
            self._abort(many)

    async def _drain(self) -> None:
        """Wait for the open groups; after a signal `drain` seconds at most, after a second one not at all."""
        deadline: float | None = None
        while self._open and self._error is None:
            if self._signals and deadline is None:
                deadline = time.monotonic() + self.plan.execution.drain
            if self._signals > 1 or (deadline is not None and time.monotonic() >= deadline):
                return
            await asyncio.wait(self._open, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)

    def _abort(self, error: BaseException) -> None:
        if isinstance(error, Abort):
            self._error = self._error or error.error
        elif isinstance(error, Draining):
            return
        elif isinstance(error, (AtroposError, BrokenPipeError)):
            self._error = self._error or error
        else:
            self._bug = error
            self._error = self._error or AtroposError(f"{type(error).__name__}: {error}")
        if self.dispatcher is not None and not isinstance(error, Abort):
            # No request more after a full disk or a reader that went away.
            self.dispatcher.fail(AtroposError(str(error)))
        self._stop.set()

    def on_signal(self) -> None:
        """Stop; at once when it is the second time."""
        self._signals += 1
        if self._signals == 1:
            waits = f"running groups get {self.drain:.0f} s; again to stop now"
            self._event("stopping", "stopping: no group has started" if self._run is None else f"stopping: {waits}")
        self._stop.set()
        if self.dispatcher is not None:
            self.dispatcher.draining = True
            self.dispatcher.demand_changed.set()

    def give_up(self) -> None:
        """End the program for a call that nothing ends, with a summary: the thread that waits for it is lost."""
        self._error = RunFailed(STUCK)
        with contextlib.suppress(Exception):
            self._end()
        leave(ExitCode.INTERRUPTED if self._signals else ExitCode.FAILED, STUCK)

    async def _watch(self) -> None:
        """Report now and then, and keep summary.json fresh for readers outside."""
        written = time.monotonic()
        while True:
            self.reporter.progress(self._snapshot())
            await asyncio.sleep(_SNAPSHOT_EVERY)
            if self.run_dir is not None and time.monotonic() - written >= _SUMMARY_EVERY:
                written = time.monotonic()
                try:
                    self.run_dir.check_present()
                except DataError as error:
                    self._abort(error)
                with contextlib.suppress(DataError):
                    self.whole.save(self._session())
                    self.run_dir.write_summary(self._summary("running"))

    def _snapshot(self) -> Snapshot:
        seconds, over = time.monotonic() - self.started_at, sum(roller.over for roller in self._rolling)
        return Snapshot.of(self.totals, self.dispatcher, over, (self.done.count, self.total), seconds)

    def _session(self) -> Sessions:
        rewards = self._parts.rewards if self._parts else ()
        return Sessions.of(self.dispatcher, rewards, time.monotonic() - self.started_at)

    def _summary(self, state: RunState) -> RunSummary:
        sessions = self.whole.earlier.with_session(self._session())
        return RunSummary(
            state=state,
            plan_digest=self.plan.digest,
            env=self._run.env_name if self._run else self.plan.environment.name,
            model=self.plan.model,
            groups_done=self.done.count,
            groups_total=self.total,
            groups_resumed=self.resumed,
            error=str(self._error) if self._error else None,
            **sessions.fields(self._parts.rewards if self._parts else ()),
            **(self._parts.fields() if self._parts else {}),
            **self.totals.fields(),
        )

    def _end(self) -> RunSummary:
        """Write the summary and notify all observers; raise what ended the run."""
        if self.run_dir is not None:
            try:
                self.run_dir.check_present()
            except DataError as error:
                self._error = self._error or error
        state = self._state()
        summary = self._summary(state)
        if self.run_dir is not None and self._run is not None:
            with contextlib.suppress(DataError):
                self.whole.save(self._session())
                self.run_dir.write_summary(summary)
                self.run_dir.log("ended", state=state, done=self.done.count)
            if state == "finished":
                self.run_dir.promote()
            elif self.run_dir.final is not None and holds_run(self.run_dir.folder):
                kept = self.run_dir.folder
                self._event("kept", f"the old run stays; the new one is in {kept} (resume it with -o {kept} --resume)")
        if self._run is not None:
            self._observe("atropos_run_finished", plan=self.plan, summary=summary)
            self.reporter.finished(summary)
        self.failures.tell(self._event, failed=state == "failed" and self._error is None)
        for wrong in (self._bug, self._error):
            if wrong is not None:
                raise wrong
        return summary

    def _state(self) -> RunState:
        if self._error is not None:
            return "failed"
        if self._signals or (self._parts is not None and self._parts.ledger.reached):
            return "interrupted"
        return "failed" if self.totals.too_many_failed(self.plan.execution.max_failure_rate) else "finished"
