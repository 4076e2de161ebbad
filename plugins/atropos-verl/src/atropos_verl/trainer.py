"""The trainer `verl`: its files, its process, and its results brought back into the run.

verl trains and samples in a Python of its own; episodes are played by our engine beside its workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.distributed import (
    Nodes,
    ask,
    check_plan,
    check_python,
    gpus_here,
    prompt_of,
    steps_of,
    suite_items,
    training_items,
    try_episode,
    write_folder,
    write_parquet,
)
from atropos_cli.sdk.training import TrainContext, Trainer, TrainPlan, TrainResult

from .config import VerlConfig
from .running import Running
from .settings import AGENT, LOOP, Shape, overrides

_INSIDE = Path(__file__).with_name("inside")
HOW = "uv venv verl && uv pip install --python verl/bin/python 'verl[vllm]==0.9.1'"


class VerlTrainer(Trainer):
    """verl trains and samples; our engine plays the episodes beside its workers."""

    name: ClassVar[str] = "verl"
    methods: ClassVar[Sequence[str]] = ("grpo",)
    Config = VerlConfig
    config: VerlConfig

    def check(self, plan: TrainPlan) -> JsonDict:
        """What verl refuses, by its own Hydra tree and validators. Raises ConfigError; needs no GPU."""
        rollouts = check_plan(plan, self.name)
        _check_suites(plan)
        python = check_python(self.config.python, self.name, HOW)
        shape = Shape(
            Path("RUN") / "verl", plan.steps or 1, Nodes.here(plan).count, self.config.gpus or gpus_here() or 8
        )
        settings = overrides(self.config, plan, rollouts, shape)
        found = ask(python, _INSIDE / "check.py", {"overrides": settings}, trainer=self.name, how=HOW)
        return {**found, "python": python, "gpus": shape.gpus * shape.nodes, "overrides": settings}

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See the port. Raises ConfigError before anything starts, TrainerError afterwards."""
        found, nodes = self.check(plan), Nodes.here(plan)
        self._check_machine(found)
        folder = context.folder.absolute() / "verl"
        run = Running(plan, context, folder, nodes, str(found["python"]))
        if nodes.number:
            return run.help()
        shape = Shape(folder, steps_of(plan, context), nodes.count, self.config.gpus or gpus_here())
        rollouts = check_plan(plan, self.name)
        run.clean()
        write_folder(folder, plan, rollouts, [_INSIDE / "atropos_verl_loop.py"])
        target = "atropos_verl_loop.AtroposAgentLoop"
        loop = [{"name": AGENT, "_target_": target, "folder": str(folder)}]
        (folder / LOOP).write_text(json.dumps(loop), encoding="utf-8")  # JSON is YAML
        try_episode(folder, next(training_items(context, 1)), self.name)
        write_parquet(folder / "train.parquet", _training_rows(plan, context, shape.steps * plan.prompts_per_step))
        suites = (_row(suite, item) for suite, item in suite_items(plan, context))
        if not write_parquet(folder / "val.parquet", suites):  # verl reads the file all the same
            write_parquet(folder / "val.parquet", _training_rows(plan, context, 1))
        return run.lead(overrides(self.config, plan, rollouts, shape), shape.steps)

    def _check_machine(self, found: Mapping[str, Any]) -> None:
        here, wanted = gpus_here(), self.config.gpus
        if not here:
            raise ConfigError(
                "verl needs NVIDIA GPUs, and there is none here",
                hint="atropos slurm submit --gpus 8 -- train grpo ...; --dry-run checks the settings without one",
            )
        if wanted is not None and wanted > here:
            raise ConfigError(f"--gpus {wanted}, and this node has {here}", hint=f"--gpus {here}")
        if found.get("engine") is None:
            engine = self.config.engine
            raise ConfigError(
                f"{found['python']} has no {engine}, which verl samples with",
                hint=f"install it there, or --engine: {HOW}",
            )


def _check_suites(plan: TrainPlan) -> None:
    kinds = {(suite.plan.group_size, suite.plan.sampling.temperature) for suite in plan.suites}
    if len(kinds) > 1:
        raise ConfigError(
            "verl evaluates all suites alike: --eval suites differ in samples or temperature",
            hint="give each the same samples=N,temperature=T",
        )


def _training_rows(plan: TrainPlan, context: TrainContext, count: int) -> Iterator[dict[str, Any]]:
    assert plan.rollouts is not None
    name = plan.rollouts.environment.name
    return (_row(name, item) for item in training_items(context, count))


def _row(source: str, item: dict[str, Any]) -> dict[str, Any]:
    """A row as verl's data set wants it; ours is the column `atropos`."""
    return {
        "prompt": prompt_of(item),
        "data_source": source,
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": item["place"]},
        "atropos": json.dumps(item),
    }
