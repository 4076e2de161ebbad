"""The trainer `lerobot`: LeRobot's own loop in LeRobot's own Python; preflight, records and resumption are ours."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import ConfigError, DataError, JsonDict
from atropos_cli.sdk.data import atomic_write
from atropos_cli.sdk.records import checkpoints as saved
from atropos_cli.sdk.training import TrainContext, Trainer, TrainerError, TrainPlan, TrainResult

from . import checkpoints, command, preflight
from .child import LOG, Child
from .config import LeRobotConfig
from .place import FAMILY

_NAMES: Mapping[str, str] = {"lr": "learning_rate", "epochs": "epoch", "dataloading_s": "data_time"}
_BESIDE = ("steps", "episodes")
_MARK = "dataset.info"


class LeRobotTrainer(Trainer):
    """See the module."""

    name: ClassVar[str] = "lerobot"
    methods: ClassVar[Sequence[str]] = ("lerobot", "groot")
    Config = LeRobotConfig
    framework = FAMILY
    config: LeRobotConfig

    def __init__(self, config: LeRobotConfig) -> None:
        super().__init__(config)
        self._ready: tuple[TrainPlan, preflight.Ready] | None = None

    def check(self, plan: TrainPlan) -> JsonDict:
        """The dataset's files, and what LeRobot itself says of it and of the arguments; no weights are loaded."""
        return self._look(plan).shown()

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See the port."""
        ready = self._look(plan)
        preflight.check_device(ready)
        for note in ready.notes:
            context.warn(note)
        run = context.folder
        checkpoints.clean(run)
        output = (run / "lerobot").absolute()
        self._mark(plan, context, ready)
        begin, arguments = 0, command.arguments(ready.order, output)
        if context.resume and not saved(run):
            context.warn("no checkpoint was saved: the training starts from its beginning")
        elif context.resume:
            begin, checkpoint = checkpoints.newest(run)
            if begin >= ready.order.steps:  # all but the end of it is there
                return finished(run, begin, {})
            arguments = command.resumed(ready.order, output, checkpoint.absolute())
        return _Watch(plan, context, ready, begin).run(arguments)

    def _look(self, plan: TrainPlan) -> preflight.Ready:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError("the trainer lerobot trains in one process", hint="leave out --processes")
        if self._ready is None or self._ready[0] != plan:
            self._ready = (plan, preflight.ready(plan, self.config))
        return self._ready[1]

    @staticmethod
    def _mark(plan: TrainPlan, context: TrainContext, ready: preflight.Ready) -> None:
        """A resumed run continues with the same data."""
        file = context.folder / _MARK
        mark = {**ready.order.data.mark(), **{name: ready.said["dataset"][name] for name in ("episodes", "frames")}}
        if context.resume and file.is_file():
            try:
                before = json.loads(file.read_bytes())
            except (OSError, ValueError):
                before = None
            if before is not None and before != mark:
                told = f"the dataset has changed: {_sizes(before)} before, {_sizes(mark)} now"
                if not plan.accept_changed_data:
                    raise DataError(told, hint="--accept-changed-data resumes with it as it is now")
                context.warn(told)
        atomic_write(file, json.dumps(mark, indent=1).encode() + b"\n")


class _Watch:
    """One process of LeRobot: its numbers into our records, our signals to it."""

    def __init__(self, plan: TrainPlan, context: TrainContext, ready: preflight.Ready, begin: int) -> None:
        self._plan = plan
        self._context = context
        self._ready = ready
        self._step = begin
        self._saved: int | None = begin or None
        self._metrics: dict[str, float] = {}
        self._failed: Mapping[str, Any] | None = None

    def run(self, arguments: list[str]) -> TrainResult:
        """To the end, or until interrupted. Raises TrainerError."""
        run, asked = self._context.folder, False
        with Child(self._ready.python, arguments, run) as child:
            for said in child.lines():
                if said is not None:
                    self._hear(said)
                if self._context.stopping and not asked:
                    asked = True
                    child.stop()
            code = child.code()
            if code and not (asked and code < 0):
                raise self._error(child, code)
        checkpoints.clean(run)
        if self._saved is not None and self._saved >= self._ready.order.steps:
            return finished(run, self._saved, self._metrics)
        if not asked:
            raise TrainerError(
                f"LeRobot ended after step {self._step} of {self._ready.order.steps}", hint=f"see {run / LOG}"
            )
        place = run / "checkpoints" / f"step-{self._saved}" if self._saved is not None else run
        return TrainResult(output=str(place), steps=self._saved or 0, metrics=self._metrics, stopped="interrupted")

    def _hear(self, said: Mapping[str, Any]) -> None:
        if isinstance(values := said.get("metrics"), dict):
            self._step = int(said["step"])
            self._metrics = metrics_of(values)
            self._context.report(self._step, self._metrics)
        elif isinstance(step := said.get("checkpoint"), int):
            self._saved = step
            checkpoints.prune(self._context.folder, self._plan.keep_checkpoints)
        elif "error" in said:
            self._failed = said

    def _error(self, child: Child, code: int) -> TrainerError:
        run = self._context.folder
        if self._failed is not None:
            what = f"{self._failed['error']}: {'; '.join(self._failed['message'][:2])}"
        else:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            what = f"its process {how}; it printed last: {child.said()}"
        saved = f"; step-{self._saved} is saved, --resume continues from it" if self._saved is not None else ""
        return TrainerError(f"LeRobot failed after step {self._step}: {what}", hint=f"see {run / LOG}{saved}")


def finished(run: Path, step: int, metrics: Mapping[str, float]) -> TrainResult:
    """The newest checkpoint is the model."""
    model = checkpoints.publish(run, run / "checkpoints" / f"step-{step}")
    return TrainResult(output=str(model), steps=step, metrics=dict(metrics))


def metrics_of(values: Mapping[str, Any]) -> dict[str, float]:
    """LeRobot's numbers by the names that other trainers give them."""
    found = {
        _NAMES.get(name, name): float(value)
        for name, value in values.items()
        if name not in _BESIDE and isinstance(value, int | float) and not isinstance(value, bool)
    }
    if "update_s" in found:
        found["step_time"] = found.pop("update_s") + found.get("data_time", 0.0)
    return found


def _sizes(mark: Mapping[str, Any]) -> str:
    return f"{mark.get('episodes')} episodes with {mark.get('frames')} frames"
