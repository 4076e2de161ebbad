"""The trainer `trl`: GRPO, SFT and DPO by TRL, with guards, checkpoints, evaluation and resumption around it.

TrlTrainer(TrlConfig()).train(plan, context)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, ClassVar

from atropos_cli.sdk import (
    ConfigError,
    JsonDict,
    TrainContext,
    Trainer,
    TrainerError,
    TrainPlan,
    TrainResult,
    wait_passively,
)

from . import REQUIRES, building, checks
from .common import checkpoints, models
from .common.machine import pick_device, pick_precision
from .common.publishing import publish
from .common.seeding import seed_everything
from .config import TrlConfig
from .job import Job
from .loop import Hooks
from .presets import preset_differences, resolve
from .sizes import batch_sizes

for _package in REQUIRES:
    if find_spec(_package) is None:  # found out here, the plan already fails, with the command that installs it
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

_SAVES_IN_A_RUN = 10
_BUILD = {"grpo": building.build_grpo, "sft": building.build_sft, "dpo": building.build_dpo}


class TrlTrainer(Trainer):
    """See the module."""

    name: ClassVar[str] = "trl"
    methods: ClassVar[Sequence[str]] = ("grpo", "sft", "dpo")
    Config = TrlConfig
    config: TrlConfig

    def check(self, plan: TrainPlan) -> JsonDict:
        """Batch arithmetic, contexts, memory and names, from headers alone; torch is not imported."""
        resolved = resolve(self.config, plan)
        return checks.check_all(self.config, plan, resolved, batch_sizes(self.config, plan))

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See the port. Raises ConfigError and DataError before the first step, TrainerError afterwards."""
        self.check(plan)
        wait_passively()
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        start = checkpoints.newest(context.folder) if context.resume else None
        job = self._prepare(plan, context)
        with models.quiet(), warnings.catch_warnings():
            # What TRL and transformers will rename in their next major version is not the user's to change.
            warnings.filterwarnings("ignore", category=FutureWarning)
            trainer = self._build(job)
            step = 0 if start is None else start[0]
            if start is not None:
                context.warn(
                    f"resumed from step {step} (weights, optimizer, scheduler, random state and data position restored)"
                )
                if hasattr(trainer, "load_generation"):
                    trainer.load_generation(start[1], step)
            if step >= trainer.args.max_steps:
                raise TrainerError(
                    f"the run has all its {trainer.args.max_steps} steps already", hint="give more --steps to go on"
                )
            return self._run(job, trainer, None if start is None else str(start[1]))

    def _prepare(self, plan: TrainPlan, context: TrainContext) -> Job:
        resolved, sizes = resolve(self.config, plan), batch_sizes(self.config, plan)
        for name, (found, expected) in preset_differences(self.config, plan).items():  # type: ignore[misc, str-unpack]
            context.warn(f"preset {self.config.preset}: {name} is {found}, the preset stands for {expected}")
        hooks = Hooks(plan, context, self.config.max_nonfinite_steps, save_every=plan.save_every or 1)
        job = Job(self.config, plan, context, resolved, sizes, hooks)
        seed_everything(plan.seed)
        job.tokenizer = models.load_tokenizer(plan.model)
        checks.check_tokenizer(job.tokenizer, plan.model, context)
        known = models.facts(plan.model).parameters
        if known is not None:
            checks.check_disk(context.folder, known, self.config)
        job.device = pick_device()
        job.precision = pick_precision(self.config.precision, job.device)
        return job

    def _build(self, job: Job) -> Any:
        from transformers.trainer_callback import PrinterCallback, ProgressCallback

        job.model = models.load_model(job.plan.model)
        checks.check_gpu_memory(job.model, job.device, job.config, job.plan, job.resolved)
        job.peft = building.make_peft(job)
        trainer = _BUILD[job.plan.method](job)
        for callback in (PrinterCallback, ProgressCallback):  # standard output is data
            trainer.remove_callback(callback)
        trainer.hooks = job.hooks
        if job.plan.save_every is None:
            job.hooks.save_every = max(1, trainer.args.max_steps // _SAVES_IN_A_RUN)
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ConfigError(
                "the weights are split over the processes; here each process holds all of them and samples with them",
                hint="leave out accelerate's FSDP or DeepSpeed; --lora-r 16 takes less memory",
            )
        job.context.adopt(trainer.model, job.tokenizer)
        return trainer

    def _run(self, job: Job, trainer: Any, checkpoint: str | None) -> TrainResult:
        context, evaluated = job.context, {}
        if checkpoint is None:
            evaluated = trainer.evaluate_now(0)
        trainer.begin()
        trainer.train(resume_from_checkpoint=checkpoint)
        step = trainer.state.global_step
        trainer.accelerator.wait_for_everyone()
        if trainer.failure is not None:
            if trainer.is_first():
                raise trainer.failure
            # A launcher ends all processes when one fails: rank 0, which says why, must not be ended by another.
            return TrainResult(output=str(context.folder), steps=step, stopped="failed")
        if trainer.stopped is not None:
            saved = checkpoints.newest(context.folder)[1]
            return TrainResult(output=str(saved), steps=step, metrics=trainer.last_metrics, stopped=trainer.stopped)
        evaluated = trainer.evaluate_now(step, final=True) or evaluated
        trainer.settle_best(step)
        output = context.folder / "model"
        if trainer.is_first():
            publish(output, trainer.accelerator.unwrap_model(trainer.model), job.tokenizer)
        return TrainResult(output=str(output), steps=step, metrics={**trainer.last_metrics, **evaluated})
