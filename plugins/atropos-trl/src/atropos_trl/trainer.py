"""The trainer `trl`: GRPO, SFT, DPO, KTO and reward models by TRL.

Around it: guards, checkpoints, evaluation, resumption.

TrlTrainer(TrlConfig()).train(plan, context)
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.models import wait_passively
from atropos_cli.sdk.training import TrainContext, Trainer, TrainerError, TrainPlan, TrainResult

from . import REQUIRES, building, checks, options
from .common import checkpoints, models
from .common.machine import here, pick_device, pick_precision, profile_of, send_no_telemetry, shown
from .common.publishing import publish, published_step
from .common.seeding import seed_everything
from .config import TrlConfig
from .job import Job
from .loop import Hooks
from .presets import preset_differences, resolve
from .sizes import batch_sizes, most_rows

for _package in REQUIRES:
    if find_spec(_package) is None:  # found out here, the plan already fails, with the command that installs it
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

_STATE = ("optimizer.pt", "scheduler.pt", "rng_state*.pth", "trainer_state.json")
"""Without these a checkpoint is no more than weights."""
_BUILD = {
    "grpo": building.build_grpo,
    "sft": building.build_sft,
    "dpo": building.build_dpo,
    "kto": building.build_kto,
    "reward": building.build_reward,
}


class TrlTrainer(Trainer):
    """See the module."""

    name: ClassVar[str] = "trl"
    methods: ClassVar[Sequence[str]] = tuple(_BUILD)
    Config = TrlConfig
    equal_groups = True
    epochs = True
    config: TrlConfig

    def propose(
        self, method: str, given: Mapping[str, Any], *, live: bool
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What the preset means for the run's sampling and batch, and what that means for --data."""
        return options.propose(self.config, method, given, live=live)

    def check(self, plan: TrainPlan) -> JsonDict:
        """Batch arithmetic, contexts, memory and names, from headers alone; torch is not imported."""
        resolved, profile = resolve(self.config, plan), here()
        sizes = batch_sizes(self.config, plan, most=most_rows(self.config, profile))
        found = checks.check_all(self.config, plan, resolved, sizes)
        return {**found, **shown(profile, self.config.precision, self.config.gradient_checkpointing)}

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See the port. Raises ConfigError and DataError before the first step, TrainerError afterwards."""
        self.check(plan)
        wait_passively()
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        send_no_telemetry()
        # accelerate sets this one and removes it while another thread samples: a variable that is added or removed
        # then can crash that thread in getenv(); one that is there already only changes its value.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        start = checkpoints.resumable(context.folder, _STATE) if context.resume else None
        job = self._prepare(plan, context)
        job.hooks.begun = 0 if start is None else start[0]
        with models.quiet(), warnings.catch_warnings():
            # What TRL and transformers will rename in their next major version is not the user's to change.
            warnings.filterwarnings("ignore", category=FutureWarning)
            trainer = self._build(job)
            if start is None or not start[0]:  # stopped before its first step: all but an evaluation lies ahead
                evaluated = start is not None and checkpoints.is_evaluated(start[1])
                return self._begin(job, trainer, evaluated=evaluated)
            return self._resume(job, trainer, *start)

    def _begin(self, job: Job, trainer: Any, *, evaluated: bool) -> TrainResult:
        if not evaluated and not trainer.is_stopping():
            trainer.evaluate_now(0)
            evaluated = not trainer.broken_off
        if trainer.is_stopping():
            if trainer.is_first():
                model = trainer.accelerator.unwrap_model(trainer.model)
                checkpoints.save_start(job.context.folder, model, job.tokenizer, evaluated=evaluated)
            return TrainResult(output=str(job.context.folder), steps=0, stopped="interrupted")
        trainer.begin()
        trainer.train()
        return self._finish(job, trainer, trainer.state.global_step)

    def _resume(self, job: Job, trainer: Any, step: int, folder: Path) -> TrainResult:
        context, all_steps = job.context, trainer.args.max_steps
        if step >= all_steps and published_step(context.folder / "model") == step:
            raise TrainerError(f"the run has all its {all_steps} steps already", hint="give more --steps to go on")
        context.warn(
            f"resumed from step {step} (weights, optimizer, scheduler, random state and data position restored)"
        )
        if step >= all_steps:  # all but the end of it is there
            trainer.load_weights(folder, step)
            return self._finish(job, trainer, step)
        # Rank 0 will change what the others look at here: they decide together.
        left_out = context.should_evaluate(step) and not checkpoints.is_evaluated(folder)
        left_out, stopping = trainer.agree(left_out, context.stopping)
        if left_out and not stopping:  # the run was stopped before that evaluation was done
            trainer.load_weights(folder, step)
            trainer.evaluate_now(step)
        if trainer.is_stopping():
            return TrainResult(output=str(folder), steps=step, stopped="interrupted")
        if hasattr(trainer, "load_generation"):
            trainer.load_generation(folder, step)
        trainer.begin()
        trainer.train(resume_from_checkpoint=str(folder))
        return self._finish(job, trainer, trainer.state.global_step)

    def _prepare(self, plan: TrainPlan, context: TrainContext) -> Job:
        device = pick_device()
        profile = profile_of(device)
        resolved = resolve(self.config, plan)
        sizes = batch_sizes(self.config, plan, most=most_rows(self.config, profile))
        for name, (found, expected) in preset_differences(self.config, plan).items():
            context.warn(f"preset {self.config.preset}: {name} is {found}, the preset stands for {expected}")
        hooks = Hooks(plan, context, self.config.max_nonfinite_steps, save_every=plan.save_every or 1)
        job = Job(self.config, plan, context, resolved, sizes, hooks)
        seed_everything(plan.seed)
        job.tokenizer = models.load_tokenizer(plan.model)
        checks.check_tokenizer(job.tokenizer, plan.model, context, ends=models.end_ids(plan.model))
        known = models.facts(plan.model).parameters
        if known is not None:
            checks.check_disk(context.folder, known, checks.footprint(self.config, plan, resolved), plan)
        job.device, job.checkpointing = device, profile.checkpointing
        job.precision = pick_precision(self.config.precision, job.device)
        return job

    def _build(self, job: Job) -> Any:
        from transformers.trainer_callback import PrinterCallback, ProgressCallback

        plan = job.plan
        job.model = (models.load_reward_model if plan.method == "reward" else models.load_model)(plan.model)
        job.vocabulary = models.check_pair(job.model, job.tokenizer, plan.model)
        what = checks.footprint(job.config, plan, job.resolved)
        job.length = checks.check_loaded(job.model, job.device, what, plan, job.context.folder).context
        checks.check_lengths(job.config, plan, job.length)
        job.peft = building.make_peft(job)
        try:
            trainer = _BUILD[plan.method](job)
        except ImportError as error:
            raise ConfigError(
                f"TRL needs a package that is not installed: {str(error).splitlines()[0]}",
                hint="install it, or leave out the name in --extra that asks for it",
            ) from error
        for callback in (PrinterCallback, ProgressCallback):  # standard output is data
            trainer.remove_callback(callback)
        trainer.hooks = job.hooks
        if plan.save_every is None:
            job.hooks.save_every = max(1, trainer.args.max_steps // checks.SAVES_IN_A_RUN)
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ConfigError(
                "the weights are split over the processes; here each process holds all of them and samples with them",
                hint="leave out accelerate's FSDP or DeepSpeed; --lora-r 16 takes less memory",
            )
        job.context.adopt(trainer.model, job.tokenizer)
        return trainer

    def _finish(self, job: Job, trainer: Any, step: int) -> TrainResult:
        """After the last step, whichever that was: the final evaluation and the model, or the error."""
        context = job.context
        trainer.accelerator.wait_for_everyone()
        if trainer.failed:
            if trainer.stopped is None:
                trainer.evaluate_failed(step)
            if trainer.is_first() and trainer.failure is not None:
                raise trainer.failure
            # A launcher ends all processes when one fails: rank 0, which says why, must not be ended by another.
            return TrainResult(output=str(context.folder), steps=step, stopped="failed")
        evaluated: dict[str, float] = {}
        stopped = trainer.is_stopping() or trainer.stopped is not None
        if not stopped:
            evaluated = trainer.evaluate_now(step, final=True)
        if stopped or trainer.broken_off:
            saved = checkpoints.newest(context.folder)[1]
            numbers = dict(trainer.last_metrics)
            return TrainResult(output=str(saved), steps=step, metrics=numbers, stopped="interrupted")
        output = context.folder / "model"
        if trainer.is_first():
            trained = trainer.accelerator.unwrap_model(trainer.model)
            publish(output, trained, job.tokenizer, step=step, warn=context.warn)
        return TrainResult(output=str(output), steps=step, metrics={**trainer.last_metrics, **evaluated})
