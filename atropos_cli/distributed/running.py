"""Another trainer while it runs: watched until it ends; its metrics, evaluations and checkpoints come into the run."""

from __future__ import annotations

import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.distributed.cluster import Nodes, Ray
from atropos_cli.distributed.episodes import CODE
from atropos_cli.distributed.process import Launched
from atropos_cli.distributed.readback import Lines, Played, prune, publish, raise_fatal
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import TrainerError
from atropos_cli.ports.trainer import TrainContext, TrainResult

_GRACE = 30.0
_NOT_THEIRS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip


class Running(ABC):
    """One session of a run. folder: the package's part of the run folder.

    Metrics come as lines {"step", "data"} in a file, a new one for each session.
    """

    package: ClassVar[str]
    main: ClassVar[Sequence[str]]
    """What its Python is started with, before the settings."""
    variables: ClassVar[Mapping[str, str]] = {}
    """More of its environment."""
    metrics_variable: ClassVar[str]
    """The variable that names the file of the metrics."""
    names: ClassVar[Mapping[str, str]]
    """Its names of numbers that other trainers report too."""
    marks: ClassVar[frozenset[str]]
    """One of them is in the numbers of each optimiser step, and in no others."""
    evaluation: ClassVar[str]
    """How its names of an evaluation's numbers begin."""
    ignored: ClassVar[tuple[str, ...]] = ()
    """How names of numbers begin that say nothing here."""
    tick: ClassVar[float] = 1.0

    def __init__(self, plan: TrainPlan, context: TrainContext, folder: Path, nodes: Nodes, python: str) -> None:
        self._plan, self._context, self._folder, self._python = plan, context, folder, python
        env = {name: value for name, value in os.environ.items() if name not in _NOT_THEIRS}
        env |= {"PYTHONPATH": str(folder / CODE), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
        self._env = env | dict(self.variables)
        self._ray = Ray(nodes, python, folder, self._env)
        self._metrics: dict[str, float] = {}
        self._published: set[int] = set()

    @abstractmethod
    def latest(self) -> int:
        """The last step whose weights are complete; 0 before the first."""

    @abstractmethod
    def saved(self) -> list[int]:
        """The steps with weights, complete or not."""

    @abstractmethod
    def weights(self, step: int) -> Path:
        """The folder with the weights of a step, as transformers or PEFT loads it."""

    def brought(self, latest: int) -> None:
        """The complete checkpoints are published: older files may be deleted."""

    @property
    def log(self) -> Path:
        """All that the package prints."""
        return self._folder / f"{self.package}.log"

    def clean(self) -> None:
        """Forget what a start that failed has left."""
        if not self._context.resume:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)

    def help(self) -> TrainResult:
        """The part of a node other than the first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ray.follow(lambda: self._context.stopping)
        return TrainResult(output=str(self._context.folder), steps=0, stopped=None)

    def lead(self, settings: Sequence[str], steps: int) -> TrainResult:
        """Run the package to its end, or until the run is asked to stop."""
        context = self._context
        if self.latest() >= steps:  # all but the end of an earlier session is there
            self._bring()
            return self._result(None, steps)
        played = Played(self._folder, self._plan)
        metrics = self._new_file()
        lines = Lines(metrics)
        launched: Launched | None = None
        try:
            env = {**self._env, **self._ray.lead(lambda: context.stopping), self.metrics_variable: str(metrics)}
            if not context.stopping:
                launched = Launched([self._python, *self.main, *settings], env, self.log)
            while launched is not None and launched.code is None and not context.stopping:
                raise_fatal(self._folder)
                self._read(lines, played)
                time.sleep(self.tick)
            if launched is not None and context.stopping:
                launched.end(_GRACE)
            self._read(lines, played)
            raise_fatal(self._folder)
        finally:
            if launched is not None:
                launched.end(_GRACE)
            self._ray.close()
        return self._result(launched, steps)

    def numbers(self, data: dict[str, Any]) -> dict[str, float]:
        """The numbers of a step under our names, the others behind the package's; those of an evaluation left out."""
        found = {}
        for name, value in data.items():
            if value is None and name in self.names:  # JSON has no NaN
                value = float("nan")
            if (
                isinstance(value, int | float)
                and not isinstance(value, bool)
                and not name.startswith((self.evaluation, *self.ignored))
            ):
                found[self.names.get(name, f"{self.package}/{name}")] = float(value)
        return found

    def _result(self, launched: Launched | None, steps: int) -> TrainResult:
        context, last = self._context, self.latest()
        if context.stopping and last != steps:
            saved = context.folder / "checkpoints" / f"step-{last}" if last else context.folder
            return TrainResult(output=str(saved), steps=last, metrics=self._metrics, stopped="interrupted")
        if last != steps:
            code = None if launched is None else launched.code
            said = "" if launched is None else launched.said(1)
            raise TrainerError(
                f"{self.package} ended with code {code} after step {last} of {steps}: {said}",
                hint=f"see {self.log}; --resume continues from the last checkpoint",
            )
        if launched is not None and launched.code not in (0, None):
            context.warn(f"{self.package} ended with code {launched.code} after its last step; see {launched.log}")
        output = context.folder / "model"
        publish(self.weights(last), output)
        return TrainResult(output=str(output), steps=last, metrics=self._metrics)

    def _new_file(self) -> Path:
        """A package may empty the file of its metrics when it starts."""
        number = len(list(self._folder.glob("metrics-*.jsonl")))
        return self._folder / f"metrics-{number}.jsonl"

    def _read(self, lines: Lines, played: Played) -> None:
        for line in lines.new():
            step, data = line.get("step"), line.get("data")
            if not isinstance(step, int) or not isinstance(data, dict):
                continue
            played.look()
            found = self.numbers(data)
            if step > 0 and not self.marks.isdisjoint(data):
                self._metrics = found
                self._context.played(step, played.trained(step))
                self._context.report(step, found)
            if any(name.startswith(self.evaluation) for name in data):
                self._context.evaluated(step, played.evaluated(step))
        self._bring()

    def _bring(self) -> None:
        """Publish the newest checkpoints that are complete."""
        latest = self.latest()
        steps = sorted(step for step in self.saved() if step <= latest)
        for step in steps[-self._plan.keep_checkpoints :]:
            target = self._context.folder / "checkpoints" / f"step-{step}"
            if step in self._published or not self.weights(step).is_dir():
                continue
            self._published.add(step)
            try:
                if not target.exists():
                    publish(self.weights(step), target)
            except TrainerError:
                if step == latest:
                    raise  # an older one: the package may have deleted it meanwhile
            best = next((one for one in self._published if self._context.is_best(one)), None)
            prune(self._context.folder, self._plan.keep_checkpoints, best)
        self.brought(latest)


def numbered(root: Path, prefix: str) -> list[int]:
    """The numbers behind a prefix in the names of a folder."""
    names = (path.name.removeprefix(prefix) for path in root.glob(f"{prefix}*"))
    return [int(name) for name in names if name.isdecimal()]


def number_in(path: Path) -> int:
    """The number that a file holds; 0 for any other, and for no file."""
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
