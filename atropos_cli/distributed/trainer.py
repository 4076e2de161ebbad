"""A trainer of another package: its settings checked by the package itself, its files written, its process watched.

It trains and samples in a Python of its own; episodes are played by our engine beside it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.distributed.cluster import Nodes
from atropos_cli.distributed.episodes import (
    check_plan,
    check_suites,
    steps_of,
    suite_items,
    training_items,
    try_episode,
    write_folder,
    write_parquet,
)
from atropos_cli.distributed.options import PackageConfig, Shape
from atropos_cli.distributed.pythons import ask, check_python, gpus_here
from atropos_cli.distributed.running import Running
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import ConfigError
from atropos_cli.ports.trainer import TrainContext, Trainer, TrainResult

TRAIN_ROWS, EVAL_ROWS = "train.parquet", "val.parquet"


class PackageTrainer(Trainer):
    """inside: a folder with `check.py` and the modules that are copied into the run, for the package's Python."""

    how: ClassVar[str]
    """The commands that install the package in a Python of its own."""
    inside: ClassVar[Path]
    modules: ClassVar[tuple[str, ...]]
    running: ClassVar[type[Running]]
    takes: ClassVar[Collection[str]] = ()
    """Those of min_p and stop that its servers can be given."""
    own_processes: ClassVar[bool] = True
    config: PackageConfig

    @abstractmethod
    def settings(self, plan: TrainPlan, rollouts: Plan, shape: Shape) -> list[str]:
        """What the package is started with, the user's own settings last. Raises ConfigError."""

    @abstractmethod
    def row(self, source: str, item: dict[str, Any]) -> dict[str, Any]:
        """A row of its data set. source: the environment or the suite. item: what an episode begins with, for us."""

    def write_more(self, folder: Path) -> None:
        """More files of the run."""

    def check(self, plan: TrainPlan) -> JsonDict:
        """What the package refuses, by its own configuration. Raises ConfigError; needs no GPU."""
        rollouts = self._rollouts(plan)
        check_suites(plan, self.name)
        python = check_python(self.config.python, self.name, self.how)
        gpus = self.config.gpus or gpus_here() or 8
        shape = Shape(Path("RUN") / self.name, plan.steps or 1, Nodes.here(plan).count, gpus)
        settings = self.settings(plan, rollouts, shape)
        question = {"overrides": settings}
        found = ask(python, self.inside / "check.py", question, trainer=self.name, how=self.how)
        return {**found, "python": python, "gpus": shape.gpus * shape.nodes, "overrides": settings}

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See the port. Raises ConfigError before anything starts, TrainerError afterwards."""
        found, nodes = self.check(plan), Nodes.here(plan)
        self._check_machine(found)
        folder = context.folder.absolute() / self.name
        run = self.running(plan, context, folder, nodes, str(found["python"]))
        if nodes.number:
            return run.help()
        shape = Shape(folder, steps_of(plan, context), nodes.count, self.config.gpus or gpus_here())
        rollouts = self._rollouts(plan)
        run.clean()
        write_folder(folder, plan, rollouts, [self.inside / f"{name}.py" for name in self.modules])
        self.write_more(folder)
        try_episode(folder, next(training_items(context, 1)), self.name)
        write_parquet(folder / TRAIN_ROWS, self._rows(plan, context, shape.steps * plan.prompts_per_step))
        suites = (self.row(suite, item) for suite, item in suite_items(plan, context))
        if not write_parquet(folder / EVAL_ROWS, suites):  # the file may be read all the same
            write_parquet(folder / EVAL_ROWS, self._rows(plan, context, 1))
        return run.lead(self.settings(plan, rollouts, shape), shape.steps)

    def _rollouts(self, plan: TrainPlan) -> Plan:
        return check_plan(plan, self.name, self.takes)

    def _rows(self, plan: TrainPlan, context: TrainContext, count: int) -> Iterator[dict[str, Any]]:
        assert plan.rollouts is not None
        name = plan.rollouts.environment.name
        return (self.row(name, item) for item in training_items(context, count))

    def _check_machine(self, found: Mapping[str, Any]) -> None:
        here, wanted = gpus_here(), self.config.gpus
        if not here:
            raise ConfigError(
                f"{self.name} needs NVIDIA GPUs, and there is none here",
                hint="atropos slurm submit --gpus-per-node 8 train grpo ...; --dry-run checks the settings without one",
            )
        if wanted is not None and wanted > here:
            raise ConfigError(f"--gpus {wanted}, and this node has {here}", hint=f"--gpus {here}")
        if found.get("engine") is None:
            engine = self.config.engine
            raise ConfigError(
                f"{found['python']} has no {engine}, which {self.name} samples with",
                hint=f"install it there, or --engine: {self.how}",
            )
