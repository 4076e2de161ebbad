"""What a training run leaves behind, in one place: each number and warning reaches every record that wants it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from atropos_cli.sdk import AtroposError, JsonDict
from atropos_cli.sdk.data import atomic_write
from atropos_cli.sdk.engine import Registry, Rolling
from atropos_cli.sdk.outputs import About, Machine, Trackers, open_trackers
from atropos_cli.sdk.records import (
    EVALUATIONS,
    STATE_FILE,
    MetricsLog,
    Samples,
    checkpoints,
    draw_curves,
    read_samples,
    run_state,
)
from atropos_cli.sdk.runs import RunDir, git_commit, now, read_metrics
from atropos_cli.sdk.training import TrainPlan, TrainResult
from atropos_training.health import Health
from atropos_training.watching import TrainWatcher

if TYPE_CHECKING:
    from atropos_training.suites import SuiteResults


class Recording:
    """metrics.jsonl, samples.jsonl, train.json and log.jsonl of a training run, and its trackers."""

    def __init__(self, plan: TrainPlan, run_dir: RunDir, registry: Registry, *, watcher: TrainWatcher) -> None:
        self.plan = plan
        self.run_dir = run_dir
        self._registry = registry
        self._say = watcher.say
        self._watcher = watcher
        folder = run_dir.folder
        self._metrics = MetricsLog(folder)
        self._samples = Samples(folder)
        limit = plan.rollouts.sampling.max_tokens if plan.rollouts is not None else None
        self._health = Health(plan.health, limit=limit, last_good=self._last_good)
        self._trackers = Trackers.none()
        self._machine: Machine | None = None
        self._started = now()
        self._commit = git_commit()
        self.step_now = 0

    def begin(self, *, resume: bool) -> None:
        """The run starts or is resumed."""
        if not resume:
            self._forget()
        folder = self.run_dir.folder
        about = About(
            command="train",
            folder=folder,
            config={"digest": self.plan.digest, **self.plan.model_dump(mode="json")},
            axis="train/step",
            resume=resume,
            earlier_samples=lambda: read_samples(folder),
        )
        self._trackers = open_trackers(self.plan.tracking, about, self._registry, self.warn)
        if self._trackers.names:
            self._machine = Machine()
        self._write_state("running", None, None, None)

    def _forget(self) -> None:
        """A start that failed may have left an evaluation: it is none of this run's."""
        for log in (self._metrics, self._samples):
            log.rewind(-1)
        shutil.rmtree(self.run_dir.folder / EVALUATIONS, ignore_errors=True)

    def resumed(self, step: int, *, evaluated: bool) -> None:
        """The run continues after this step: later steps are recorded again.

        evaluated: False when the step's own evaluation is made again too; the logs then cut themselves.
        """
        self.step_now = step
        if evaluated:
            self._metrics.rewind(step)
            self._samples.rewind(step)
        self._health.replay((at, values) for at, values in read_metrics(self.run_dir.folder) if at <= step)
        self._watcher.resumed(step)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """One optimiser step. Raises TrainerError when a stop rule says so."""
        self.step_now = step
        values = self._metrics.write(step, metrics)
        self._trackers.metrics(step, values | (self._machine.look() if self._machine is not None else {}))
        self._watcher.step(step, self.plan.steps, values)
        for warning in self._health.observe(step, values):
            self.warn(str(warning))

    def rolling(self, rolling: Rolling) -> None:
        """Progress of the rollouts, called from the thread that makes them."""
        self._watcher.rolling(rolling)

    def samples(self, step: int, rows: Sequence[JsonDict], *, suite: str | None = None) -> None:
        """Some completions of a step or of an evaluation."""
        self._trackers.samples(step, self._samples.write(step, rows, suite=suite))

    def videos(self, step: int, rows: Sequence[JsonDict]) -> None:
        """Videos of an evaluation, for the trackers."""
        self._trackers.videos(step, rows)

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """What the suites found after a step."""
        self._trackers.metrics(step, self._metrics.evaluation(step, values))
        shown = ", ".join(_shown(name, value) for name, value in values.items() if _told(name, value))
        self._say(f"step {step}: {shown}")

    def warn(self, message: str) -> None:
        """Tell people, and the log."""
        self._say(f"warning: {message}")
        with contextlib.suppress(AtroposError):
            self.run_dir.log("warning", message=message)

    def note(self, message: str) -> None:
        """A message to people and the log, without the word warning."""
        self._say(message)
        with contextlib.suppress(AtroposError):
            self.run_dir.log("note", message=message)

    def end(
        self,
        state: str,
        code: int,
        result: TrainResult | None,
        results: SuiteResults,
        *,
        error: BaseException | None,
    ) -> None:
        """The run is over, however it ended. Must not raise: the run's own error would be lost."""
        self._trackers.finish(code)
        if self._machine is not None:
            self._machine.close()
        for log in (self._metrics, self._samples):
            with contextlib.suppress(AtroposError, OSError):
                log.close()
        with contextlib.suppress(AtroposError, OSError):
            self._write_state(state, result, results, error)
        if read_metrics(self.run_dir.folder):
            with contextlib.suppress(AtroposError, OSError):
                draw_curves(self.run_dir.folder, self.plan.run_name)

    def _last_good(self) -> str | None:
        found = checkpoints(self.run_dir.folder)
        return found[-1] if found else None

    def _write_state(
        self, state: str, result: TrainResult | None, results: SuiteResults | None, error: BaseException | None
    ) -> None:
        data: JsonDict = {
            "state": state,
            "plan_digest": self.plan.digest,
            "plan_steps": self.plan.steps,
            "plan_epochs": self.plan.epochs,
            "method": self.plan.method,
            "trainer": self.plan.trainer.name,
            "model": self.plan.model,
            "attempt": self.run_dir.attempt,
            "started": self._started,
            "updated": now(),
            "git_commit": self._commit,
            "step": result.steps if result is not None else self.step_now,
            "output": result.output if result is not None else None,
            "metrics": dict(result.metrics) if result is not None else {},
            "stopped": result.stopped if result is not None else None,
            "error": str(error) if error is not None else None,
        }
        if results is not None and results.history:
            steps = sorted(results.history)
            data["evaluations"] = {"first": {**results.history[steps[0]]}, "last": {**results.history[steps[-1]]}}
            data["best_step"] = results.best_step
        data |= run_state(self.run_dir.folder)
        data["warnings"] = dict(self._health.counts)
        text = json.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n"
        atomic_write(self.run_dir.folder / STATE_FILE, text)


def _told(name: str, value: float) -> bool:
    """An error is worth its place where there is one."""
    return (name.endswith("/errors") and value > 0) or name.endswith(
        ("/accuracy", "/accuracy_low", "/accuracy_high", "/reward")
    )


def _shown(name: str, value: float) -> str:
    name = name.removeprefix("eval/")
    return f"{name} {value:.0f}" if name.endswith("/errors") else f"{name} {value:.3f}"
