"""Score stored rollouts again: rewards run in killable processes, old scores are kept, a stopped run can be resumed.

Records are scored several at a time and written in the order of the input. A rollout that failed before
it was ever scored (no answer, a broken environment) is left as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from atropos_cli.datasets.rescore.partial import Partial
from atropos_cli.datasets.rescore.rows import Scorer, is_kept, scored_rows, scorer_of
from atropos_cli.errors import DataError, PluginError, RunFailed
from atropos_cli.io.formats.native import native_group
from atropos_cli.io.grouping import group_rows
from atropos_cli.io.jsonvalue import dump
from atropos_cli.io.readers import ReadLog, ReadOptions, read_records
from atropos_cli.io.records import Record
from atropos_cli.io.rundir import read_plan
from atropos_cli.io.sources import Source
from atropos_cli.rollout.workers import PoolOptions, RewardSet, ScorePool, Verdict
from atropos_cli.stats.tallies import add_tally, tally_state
from atropos_cli.text.thinking import log_unknown_marks

_FIRST_ERRORS = 5
_NUMBERS = ("rollouts", "scored", "not_scored", "old_sum", "old_count", "new_sum")
_COUNTERS = ("errors", "changes", "sums", "valued")
_ENOUGH = 50
"""Rollouts before the share of errors is judged."""


@dataclass(frozen=True, slots=True)
class ScoreJob:
    """What to score, with what.

    max_error_rate: the run stops when a larger share of rewards fails. advantages: how they are computed in the
    groups of a source (by its name); "grpo" where nothing is said.
    """

    sources: Sequence[Source]
    rewards: RewardSet
    pool: PoolOptions = field(default_factory=PoolOptions)
    read: ReadOptions = field(default_factory=ReadOptions)
    group_rows: bool = False
    max_error_rate: float = 0.5
    advantages: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ScoreReport:
    """The results. changes: verdicts against the old scores; errors: by type. resumed: records from before.

    sums, valued: of the values of each reward, the sum and how many there are. metrics: (sum, count) of the numbers
    that rewards report beside their values.
    """

    state: str = "finished"
    scorer: Scorer = field(default_factory=dict)
    records: int = 0
    resumed: int = 0
    rollouts: int = 0
    scored: int = 0
    not_scored: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    valued: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, tuple[float, int]] = field(default_factory=dict)
    old_sum: float = 0.0
    old_count: int = 0
    new_sum: float = 0.0
    restarts: int = 0
    first_errors: list[str] = field(default_factory=list)
    trace: str | None = None

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    def take(self, record: Record, verdicts: Sequence[Verdict]) -> None:
        """Count one record."""
        self.records += 1
        for rollout, verdict in zip(record.rollouts, verdicts, strict=True):
            self.rollouts += 1
            if is_kept(rollout):
                self.not_scored += 1
                continue
            log_unknown_marks(rollout.text)  # rewards say so too, in processes of their own that nobody hears
            self.changes[_change(rollout.score, verdict.reward)] += 1
            if rollout.score is not None:
                self.old_sum += rollout.score
                self.old_count += 1
            if verdict.failure is not None:
                self._failed(record, rollout.index, verdict)
                continue
            assert verdict.reward is not None
            self.scored += 1
            self.new_sum += verdict.reward
            for name, value in verdict.rewards.items():
                self.sums[name] += value  # type: ignore[assignment]
                self.valued[name] += 1
            for name, value in verdict.metrics.items():
                total, count = self.metrics.get(name, (0.0, 0))
                self.metrics[name] = (total + value, count + 1)

    def _failed(self, record: Record, index: int, verdict: Verdict) -> None:
        assert verdict.failure is not None
        self.errors[verdict.failure["type"]] += 1
        if len(self.first_errors) < _FIRST_ERRORS:
            told = f"{verdict.failure['type']}: {verdict.failure['message']}"
            self.first_errors.append(f"{record.where}: rollout {index}: {told}")
        if self.trace is None:
            self.trace = verdict.trace

    def as_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "scorer": self.scorer,
            "records": self.records,
            "resumed": self.resumed,
            "rollouts": self.rollouts,
            "scored": self.scored,
            "failed": self.failed,
            "not_scored": self.not_scored,
            "errors": dict(self.errors),
            "changes": {name: self.changes[name] for name in CHANGES},
            "mean_before": self.old_sum / self.old_count if self.old_count else None,
            "mean": self.new_sum / self.scored if self.scored else None,
            "rewards": {name: total / (self.valued[name] or self.scored) for name, total in self.sums.items()},
            "metrics": {name: total / count for name, (total, count) in self.metrics.items()},
            "restarts": self.restarts,
        }

    def tally(self) -> dict[str, Any]:
        """The counts, for `absorb`."""
        told = {"first_errors": self.first_errors, "trace": self.trace, "scorer": self.scorer}
        numbers = tally_state(self, *_NUMBERS, *_COUNTERS, "records", "resumed", "restarts")
        return {"numbers": numbers, "metrics": self.metrics, **told}

    def absorb(self, state: dict[str, Any]) -> None:
        """Add the counts of another part of the input."""
        add_tally(self, state["numbers"])
        for name, (total, count) in state["metrics"].items():
            old_total, old_count = self.metrics.get(name, (0.0, 0))
            self.metrics[name] = (old_total + total, old_count + count)
        self.first_errors += state["first_errors"][: _FIRST_ERRORS - len(self.first_errors)]
        self.trace = self.trace or state["trace"]
        self.scorer = self.scorer or state["scorer"]

    def counts(self) -> dict[str, Any]:
        """For a partial output: what a resumed run adds to."""
        counters = {name: dict(getattr(self, name)) for name in _COUNTERS}
        return {"numbers": {name: getattr(self, name) for name in _NUMBERS}, "metrics": self.metrics, **counters}

    def restore(self, counts: dict[str, Any], records: int) -> None:
        for name, value in counts.get("numbers", {}).items():
            setattr(self, name, value)
        for name in _COUNTERS:
            setattr(self, name, Counter(counts.get(name, {})))
        self.metrics = {name: (total, count) for name, (total, count) in counts.get("metrics", {}).items()}
        self.records = self.resumed = records


CHANGES = ("higher", "lower", "same", "first", "lost", "none")


def _change(old: float | None, new: float | None) -> str:
    """first: scored for the first time. lost: had a score, has none now. none: never had one."""
    if old is None:
        return "none" if new is None else "first"
    if new is None:
        return "lost"
    return "same" if abs(new - old) <= 1e-9 else "higher" if new > old else "lower"


def run_score(job: ScoreJob, partial: Partial, log: ReadLog, **how: Any) -> ScoreReport:
    """Score all records into `partial`. how: resume, overwrite (of a partial output), tick (called per record).

    Ctrl-C and SIGTERM end it with state "interrupted" and everything finished saved. Raises PluginError for
    rewards that cannot be loaded, RunFailed when too many fail, DataError as the readers do.
    """
    return asyncio.run(_run(job, partial, log, **how))


async def _run(
    job: ScoreJob,
    partial: Partial,
    log: ReadLog,
    *,
    resume: bool = False,
    overwrite: bool = False,
    tick: Callable[[], None] = lambda: None,
) -> ScoreReport:
    report = ScoreReport()
    async with ScorePool(job.rewards, job.pool) as pool:
        report.scorer = scorer_of(pool.scorers)
        partial.open(fingerprint(job, report.scorer), resume=resume, overwrite=overwrite)
        try:
            report.restore(partial.counts, partial.records)
            async with _interruptible() as stop:
                records = islice(_records(job, log), partial.records, None)
                await _work(
                    job,
                    pool,
                    records,
                    stop,
                    lambda record, verdicts: _take(record, verdicts, partial, report, job, tick),
                )
                if stop.is_set():
                    report.state = "interrupted"
            partial.save()
        except BaseException:
            partial.close()
            raise
        report.restarts = pool.restarts
    return report


def _records(job: ScoreJob, log: ReadLog) -> Iterator[Record]:
    records: Iterable[Record] = read_records(job.sources, job.read, log)
    return iter(group_rows(records) if job.group_rows else records)


async def _work(
    job: ScoreJob,
    pool: ScorePool,
    records: Iterator[Record],
    stop: asyncio.Event,
    take: Callable[[Record, list[Verdict]], None],
) -> None:
    """Keep the pool busy; hand the verdicts over in the order of the records."""
    pending: deque[tuple[Record, asyncio.Task[list[Verdict]]]] = deque()
    stopped = asyncio.create_task(stop.wait())
    window = 2 * job.pool.workers
    try:
        for record in records:
            pending.append((record, asyncio.create_task(pool.score_raw(*_as_job(record)))))
            while len(pending) >= window and not stop.is_set():
                await _first(pending, stopped, take)
            if stop.is_set():
                return
        while pending and not stop.is_set():
            await _first(pending, stopped, take)
    finally:
        stopped.cancel()
        for _, task in pending:
            task.cancel()
        await asyncio.gather(*(task for _, task in pending), return_exceptions=True)


async def _first(
    pending: deque[tuple[Record, asyncio.Task[list[Verdict]]]],
    stopped: asyncio.Task[Any],
    take: Callable[[Record, list[Verdict]], None],
) -> None:
    record, task = pending[0]
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        pending.popleft()
        take(record, task.result())


def _as_job(record: Record) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(task, rollouts) for the pool. An old failure at stage "score" is forgotten, others keep their rollout out."""
    group = native_group(record)
    rows = []
    for rollout, row in zip(record.rollouts, group["rollouts"], strict=True):
        if not is_kept(rollout):
            row = {key: value for key, value in row.items() if key not in ("failure", "reward", "rewards")}
        rows.append(row)
    # A round trip: what cannot be written as JSON must not reach the pool's pipe.
    task: dict[str, Any] = json.loads(dump(group["task"]))
    return task, rows


def _take(
    record: Record,
    verdicts: list[Verdict],
    partial: Partial,
    report: ScoreReport,
    job: ScoreJob,
    tick: Callable[[], None],
) -> None:
    for verdict in verdicts:
        if verdict.failure is not None and verdict.failure["type"] == "WrongCount":
            raise PluginError(
                f"{record.where}: {verdict.failure['message']}",
                hint="a group reward returns one value for each rollout",
            )
    report.take(record, verdicts)
    advantage = job.advantages.get(record.source, "grpo")
    partial.add([dump(row) for row in scored_rows(record, verdicts, report.scorer, advantage)])
    partial.counts = report.counts()
    tick()
    tried = report.scored + report.failed
    if tried >= _ENOUGH and report.failed > job.max_error_rate * tried:
        kinds = ", ".join(f"{count} {name}" for name, count in report.errors.most_common(3))
        raise RunFailed(
            f"{report.failed} of {tried} rewards failed ({kinds}); the first: {report.first_errors[0]}",
            hint="fix the reward; finished scores are kept for --resume, --max-error-rate sets the limit",
        )


def fingerprint(job: ScoreJob, scorer: Scorer) -> dict[str, Any]:
    """What must be the same for a resumed run."""
    files = []
    for source in job.sources:
        status = source.path.stat() if source.path is not None else None
        files.append([source.name, status.st_size if status else None, status.st_mtime_ns if status else None])
    return {"inputs": files, "scorer": scorer, "format": job.read.format, "grouped": job.group_rows}


@contextlib.asynccontextmanager
async def _interruptible() -> AsyncIterator[asyncio.Event]:
    """An event that Ctrl-C or SIGTERM sets; the second signal ends the program as usual."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):  # not on the main thread
        for number in numbers:
            loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            for number in numbers:
                loop.remove_signal_handler(number)


def rewards_of_run(folder: Path) -> RewardSet:
    """The rewards of a run's plan, its environment's own ones included. Raises DataError."""
    plan = read_plan(folder / "plan.json")
    if plan.mixture:
        raise DataError(
            f"{folder} is of a mixture, whose environments have rewards of their own",
            hint="name those to score with: --reward NAME",
        )
    if not plan.rewards:
        raise DataError(f"the plan of {folder} has no rewards", hint="name some: --reward NAME")
    return RewardSet(
        tuple((reward.name, reward.weight) for reward in plan.rewards),
        plan.environment.name,
        {reward.name: {**reward.config, **reward.access} for reward in plan.rewards},
        plan.environment.config,
    )


def advantages_of(sources: Sequence[Source]) -> dict[str, str]:
    """The kind of advantages of each source that is a run."""
    return {
        source.name: read_plan(source.run / "plan.json").advantage
        for source in sources
        if source.run is not None and (source.run / "plan.json").exists()
    }
