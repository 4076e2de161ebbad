"""What a training run leaves behind, in one place: each number and warning reaches every record that wants it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.training import TrainPlan
from atropos_cli.engine.training.records.metrics import MetricsLog
from atropos_cli.engine.training.records.samples import Samples
from atropos_cli.errors import AtroposError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.rundir import RunDir, now
from atropos_cli.ports.trainer import TrainResult

if TYPE_CHECKING:
    from atropos_cli.engine.training.suites import SuiteResults

STATE_FILE = "train.json"
Say = Callable[[str], None]


class Recording:
    """metrics.jsonl, samples.jsonl, train.json and log.jsonl of a training run, and its trackers."""

    def __init__(self, plan: TrainPlan, run_dir: RunDir, *, say: Say) -> None:
        self.plan = plan
        self.run_dir = run_dir
        self._say = say
        self._metrics = MetricsLog(run_dir.folder)
        self._samples = Samples(run_dir.folder)
        self._started = now()
        self.step_now = 0

    def begin(self, *, resume: bool) -> None:
        """The run starts, or goes on."""
        self._write_state("running", None, None, None)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """One optimiser step. Raises TrainerError when a stop rule says so."""
        self.step_now = step
        self._metrics.write(step, metrics)

    def samples(self, step: int, rows: Sequence[JsonDict], *, suite: str | None = None) -> None:
        """Some completions of a step or of an evaluation."""
        self._samples.write(step, rows, suite=suite)

    def evaluation(self, step: int, values: Mapping[str, float], *, final: bool) -> None:
        """What the suites found after a step."""
        self._metrics.evaluation(step, values)
        shown = ", ".join(f"{name.removeprefix('eval/')} {value:.3f}" for name, value in values.items() if _told(name))
        self._say(f"step {step}: {shown}")

    def warn(self, message: str) -> None:
        """Tell people, and the log."""
        self._say(f"warning: {message}")
        with contextlib.suppress(AtroposError):
            self.run_dir.log("warning", message=message)

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
        with contextlib.suppress(AtroposError, OSError):
            self._write_state(state, result, results, error)
        for log in (self._metrics, self._samples):
            with contextlib.suppress(AtroposError, OSError):
                log.close()

    def _write_state(
        self, state: str, result: TrainResult | None, results: SuiteResults | None, error: BaseException | None
    ) -> None:
        data: JsonDict = {
            "state": state,
            "plan_digest": self.plan.digest,
            "method": self.plan.method,
            "trainer": self.plan.trainer.name,
            "model": self.plan.model,
            "attempt": self.run_dir.attempt,
            "started": self._started,
            "updated": now(),
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
        text = json.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n"
        atomic_write(self.run_dir.folder / STATE_FILE, text)


def _told(name: str) -> bool:
    return name.endswith(("/accuracy", "/accuracy_low", "/accuracy_high", "/reward"))
