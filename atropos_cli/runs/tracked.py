"""What trackers are told of `gen` and `eval`: numbers now and then while it runs, what came out in the end.

    with tracked(plan, folder, registry) as order:
        run_gen(..., reporter=order.reporting(reporter))

The steps are rollouts: a number that only grows, however often the run is resumed.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.run import RunState, RunSummary
from atropos_cli.errors import AtroposError, ExitCode
from atropos_cli.io.rundir import holds_run, where_it_stands
from atropos_cli.io.sources import find_sources
from atropos_cli.plugins.registry import Registry
from atropos_cli.rollout.report import Examined, Reporter, SilentReporter, Snapshot
from atropos_cli.rollout.sessions import read_group
from atropos_cli.rollout.totals import Totals
from atropos_cli.stats.streaming import finite
from atropos_cli.tracking.machine import Machine
from atropos_cli.tracking.services import About, Trackers, open_trackers

if TYPE_CHECKING:
    from atropos_cli.evaluation.evaluation import Evaluation

AXIS = "rollouts"
_MOST_NAMES = 40
"""Names of one kind (metrics of an environment, kinds of failures) that are reported: they come from outside."""
_FIRST = 2.0
_CODES: dict[RunState, int] = {"failed": ExitCode.FAILED, "interrupted": ExitCode.INTERRUPTED}


@contextmanager
def tracked(
    plan: Plan,
    folder: Path | None,
    registry: Registry,
    *,
    overwrite: bool = False,
    command: Literal["gen", "eval"] = "gen",
) -> Iterator[RunTracking]:
    """A run whose trackers are ended on every way out. Nothing is opened before the run reports its start."""
    found = RunTracking(plan, folder, registry, overwrite=overwrite, command=command)
    try:
        yield found
    except BaseException as error:
        code = getattr(error, "exit_code", ExitCode.BUG)
        found.close(ExitCode.INTERRUPTED if isinstance(error, KeyboardInterrupt) else int(code))
        raise
    found.close()


class RunTracking:
    """A plan, where it goes, and the trackers that it names. folder None: the groups go to stdout."""

    def __init__(
        self,
        plan: Plan,
        folder: Path | None,
        registry: Registry,
        *,
        overwrite: bool = False,
        command: Literal["gen", "eval"] = "gen",
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.overwrite = overwrite
        self.command = command
        self.registry = registry
        self.resume = folder is not None and not overwrite and holds_run(folder)
        self.reporter: Reporter = SilentReporter()
        self.trackers = Trackers.none()
        self.step = 0
        self.code = 0
        self._machine: Machine | None = None
        self._aside: Path | None = None
        self._told = False

    def reporting(self, reporter: Reporter) -> Reporter:
        """A reporter that tells the trackers as well."""
        self.reporter = reporter
        tells = self.plan.tracking.trackers or self.plan.delivery.eval_every is not None
        return _TellingReporter(self) if tells else reporter

    def open(self, plan: Plan) -> None:
        """The run begins. Where it will take another's place, what trackers write waits beside it meanwhile."""
        if not self.plan.tracking.trackers:
            return
        if self.folder is None:
            self.say("--track needs a run folder: nothing is tracked")
            return
        place = where_it_stands(self.folder, overwrite=self.overwrite)
        if place != self.folder:
            place = self._aside = self.folder.with_name(f".{self.folder.name}.tracking")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True, exist_ok=True)
        about = About(
            command=self.command,
            folder=place,
            name=self.folder.absolute().name,
            config={"digest": plan.digest, **plan.model_dump(mode="json")},
            axis=AXIS,
            resume=self.resume,
        )
        self.trackers = open_trackers(plan.tracking, about, self.registry, self.say, wait=False)
        self._machine = Machine()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Whatever goes wrong inside is said, and ends the tracking, not the run."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (a full disk, no more threads, a plan that cannot be told)
            self.say(f"the run is not tracked from here: {type(error).__name__}: {error}")
            trackers, self.trackers = self.trackers, Trackers.none()
            trackers.drop()

    def say(self, text: str) -> None:
        self.reporter.event("tracker", f"warning: {text}")

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        """Numbers of a step that was not told of before; the first step of a session may be the last of another."""
        if step > self.step or not self._told:
            self.step, self._told = step, True
            machine = self._machine.look() if self._machine is not None else {}
            self.trackers.metrics(step, {**values, **machine})

    def ended(self, summary: RunSummary) -> None:
        """What came out of the run, and some of its rollouts."""
        self.code = _CODES.get(summary.state, 0)
        if self.trackers.names and self.folder is not None:
            with suppress(AtroposError, OSError, ValueError):
                self.trackers.samples(summary.rollouts, self._samples())
            self.trackers.summary(summary.rollouts, summary_values(summary, self.plan.group_size))

    def evaluated(self, found: Evaluation) -> None:
        """What an evaluation counted."""
        if self.trackers.names:
            with self.guarded():
                values = evaluation_values(found)
                self.trackers.metrics(max(self.step, found.rollouts), values)
                self.trackers.summary(max(self.step, found.rollouts), values)

    def examined(self, found: Examined) -> None:
        """Count held-out tasks that were played during the run, keep the result, and report it."""
        from atropos_cli.runs.heldout import keep

        try:
            result, line = keep(found)
        except (AtroposError, OSError, ValueError) as error:
            self.reporter.event("evaluation", f"warning: step {found.step}: the evaluation is not kept: {error}")
            return
        self.reporter.event("evaluation", line)
        if self.trackers.names:
            with self.guarded():
                values = evaluation_values(result)
                self.trackers.metrics(self.step, {**values, "trainer_step": float(found.step)})

    def close(self, code: int | None = None) -> None:
        """End the trackers, and put what they wrote into the run's folder."""
        self.trackers.finish(self.code if code is None else code)
        if self._machine is not None:
            self._machine.close()
        if self._aside is not None and self.folder is not None:
            place = where_it_stands(self.folder, overwrite=self.overwrite)
            try:
                for path in self._aside.iterdir():
                    shutil.move(path, place / path.name)
                self._aside.rmdir()
            except (OSError, shutil.Error) as error:
                self.say(f"what the trackers wrote stays in {self._aside}: {error}")

    def _samples(self) -> list[JsonDict]:
        """Rollouts of the first groups, in the form that training shows."""
        from atropos_cli.training.samples import MOST_CHARACTERS, plain_cell, sample_row, spaced

        most = self.plan.tracking.track_samples
        assert self.folder is not None
        place = where_it_stands(self.folder, overwrite=self.overwrite)
        groups = []
        for source in find_sources([str(place)])[:1]:
            with source.open() as file:
                groups = [read_group(line, source.name) for line in itertools.islice(file, most)]
        alive = [(group, one) for group in groups for one in group.rollouts if one.failure is None]
        rows = [sample_row(group.task, one, ()) for group, one in spaced(alive, most)]
        return [{name: plain_cell(value, MOST_CHARACTERS) for name, value in row.items()} for row in rows]


class _TellingReporter:
    """Passes everything on to the reporter of a RunTracking, and tells its trackers."""

    def __init__(self, run: RunTracking) -> None:
        self._run = run
        self._inner = run.reporter
        self._next = self._every = 0.0
        self._before = _Before()

    def started(self, plan: Plan, total: int | None, done: int) -> None:
        self._inner.started(plan, total, done)
        with self._run.guarded():
            self._run.open(plan)
        self._every = plan.tracking.track_every
        self._next = time.monotonic() + min(_FIRST, self._every)

    def progress(self, snapshot: Snapshot) -> None:
        self._inner.progress(snapshot)
        totals = snapshot.totals
        if totals is None:
            return
        if not self._before.known:  # what earlier sessions did is no part of our speed
            self._before.look(snapshot, totals)
        elif time.monotonic() >= self._next and totals.rollouts > self._before.rollouts:
            self._next = time.monotonic() + self._every
            with self._run.guarded():
                values = self._before.values(snapshot, totals, self._run.plan.group_size)
                self._run.metrics(totals.rollouts, values)

    def event(self, kind: str, message: str) -> None:
        self._inner.event(kind, message)

    def examined(self, found: Examined) -> None:
        self._run.examined(found)

    def finished(self, summary: RunSummary) -> None:
        self._inner.finished(summary)
        with self._run.guarded():
            values = state_values(summary.model_dump(), summary.groups_done, self._run.plan.group_size)
            self._run.metrics(summary.rollouts, values)
            self._run.ended(summary)


class _Before:
    """The last report, from which the speeds are."""

    def __init__(self) -> None:
        self.known = False
        self.rollouts = 0

    def look(self, snapshot: Snapshot, totals: Totals) -> None:
        self.known = True
        self.rollouts = totals.rollouts
        self._seconds, self._groups, self._tokens = snapshot.seconds, snapshot.groups_done, totals.completion_tokens
        self._rewards, self._sum = totals.reward.n, totals.reward.n * totals.reward.mean

    def values(self, snapshot: Snapshot, totals: Totals, group_size: int) -> dict[str, float | None]:
        seconds = max(snapshot.seconds - self._seconds, 1e-9)
        new = totals.reward.n - self._rewards
        whole = totals.reward.n * totals.reward.mean
        found: dict[str, float | None] = {
            "groups/per_s": (snapshot.groups_done - self._groups) / seconds,
            "tokens/per_s": (totals.completion_tokens - self._tokens) / seconds,
            "requests/in_flight": float(snapshot.requests_in_flight),
            "reward/recent": finite((whole - self._sum) / new) if new > 0 else None,
        }
        self.look(snapshot, totals)
        return state_values(totals.fields(), snapshot.groups_done, group_size) | found


def state_values(counted: Mapping[str, Any], groups_done: int, group_size: int) -> dict[str, float | None]:
    """Where a run stands. counted: the fields of a RunSummary that Totals counts."""
    found: dict[str, float | None] = {
        "groups/done": groups_done,
        "groups/failed": counted["groups_failed"],
        "groups/with_spread": with_spread(counted, group_size),
        "rollouts/failed": counted["rollouts_failed"],
        "reward/mean": finite(counted["reward_mean"]),
        "reward/std": finite(counted["reward_std"]),
        "tokens/prompt": counted["prompt_tokens"],
        "tokens/completion": counted["completion_tokens"],
    }
    for kind in ("failures", "rewards", "metrics", "stop_reasons"):
        named = itertools.islice(counted[kind].items(), _MOST_NAMES)
        found |= {f"{kind}/{name}": finite(value) for name, value in named}
    return found


def with_spread(counted: Mapping[str, Any], group_size: int) -> float | None:
    """The share of groups whose rewards differ; those that taught a trainer anything."""
    lost = counted["groups_failed"] * group_size
    groups = round((counted["rollouts"] - lost) / group_size)
    return None if group_size < 2 or groups < 1 else max(0.0, 1 - counted["zero_std_groups"] / groups)


def summary_values(summary: RunSummary, group_size: int) -> dict[str, float | str]:
    """What came out of a run."""
    counted = summary.model_dump()
    texts: dict[str, str | float | None] = {"state": summary.state, "env": summary.env, "model": summary.model}
    texts |= {"plan_digest": summary.plan_digest, "error": summary.error, "seconds": summary.seconds}
    texts |= {"requests": summary.requests, "retries": summary.retries, "groups/total": summary.groups_total}
    if summary.seconds > 0:
        texts["tokens/per_s"] = summary.completion_tokens / summary.seconds
        texts["groups/per_s"] = summary.groups_done / summary.seconds
    values = {**state_values(counted, summary.groups_done, group_size), **texts}
    return {name: value for name, value in values.items() if value is not None}


def evaluation_values(found: Evaluation) -> dict[str, float]:
    """The results of an evaluation under the names that training gives to those of its suites."""
    from atropos_cli.training.summary import plain_name

    values = found.headline()
    estimates = {f"pass@{k}": value for k, value in found.pass_at.items() if k != "1"}
    estimates |= {f"pass^{k}": value for k, value in found.pass_hat.items() if k != "1"}
    if found.reward is not None:
        estimates["reward"] = found.reward
    for name, estimate in estimates.items():
        values[name] = estimate.value
        if estimate.low is not None and estimate.high is not None:
            values |= {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    values |= {"tasks": float(found.tasks), "rollouts": float(found.rollouts)}
    return {f"eval/{plain_name(found.environment)}/{name}": value for name, value in values.items()}
