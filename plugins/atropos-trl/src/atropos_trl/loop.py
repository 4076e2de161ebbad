"""What all three TRL trainers do around a step: records, evaluation, checkpoints, guards, stopping.

LoopMixin stands before a TRL trainer in the bases of a class made at run time (TRL is imported only then).
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from atropos_cli.sdk import AtroposError
from atropos_cli.sdk.training import TrainContext, TrainerError, TrainPlan

from .common import checkpoints
from .common.seeding import same_random_state

ADAM_BYTES = 8
FLOAT_BYTES = 4
STATE_BYTES = 1 << 20
_NOT_METRICS = frozenset({"epoch", "total_flos", "train_loss", "num_input_tokens_seen"})


@dataclass
class Hooks:
    """What a trainer object needs to know of the run."""

    plan: TrainPlan
    context: TrainContext
    max_nonfinite: int
    save_every: int
    begun: int = 0
    """The step that the run goes on behind; 0: it is at its beginning."""
    extra_state: Callable[[Any], dict[str, bytes]] | None = None
    """Further files of a checkpoint, by name; of every process."""


def bring_in(base: type, *mixins: type) -> Any:
    """A TRL trainer class with mixins in front."""
    return type(f"Atropos{base.__name__}", (*mixins, LoopMixin, base), {})


class LoopMixin:
    """Overrides of transformers.Trainer; `hooks` is set before train()."""

    hooks: Hooks
    stopped: str | None = None
    failure: AtroposError | None = None
    failed = False
    """Has any rank failed?"""
    skipped_steps = 0
    last_metrics: Mapping[str, float] = MappingProxyType({})

    args: Any
    state: Any
    control: Any
    model: Any
    accelerator: Any
    optimizer: Any
    _tr_loss: Any

    _settled = 0
    _saved = -1
    broken_off = False
    _skip = False
    _began = 0.0
    _writing = False

    # Several processes -----------------------------------------------------------------------------------------------

    def agree(self, *flags: bool) -> tuple[bool, ...]:
        """Each flag is true when it is on any rank. All ranks must call it at the same place."""
        if self.accelerator.num_processes == 1:
            return flags
        import torch

        mine = torch.tensor([flags], dtype=torch.int32, device=self.accelerator.device)
        return tuple(bool(flag) for flag in self.accelerator.gather(mine).amax(0).tolist())

    def is_stopping(self) -> bool:
        """Is the run asked to stop, on any rank? A collective operation."""
        (stopping,) = self.agree(self.hooks.context.stopping)
        return stopping

    def is_first(self) -> bool:
        """Is this rank 0, which writes?"""
        return bool(self.accelerator.is_main_process)

    # One optimiser step ----------------------------------------------------------------------------------------------

    def _clip_grad_norm(self, model: Any) -> Any:
        """The norm; when it is not finite, the gradients are dropped, so that the optimiser passes the step over."""
        norm = super()._clip_grad_norm(model)  # type: ignore[misc]
        (self._skip,) = self.agree(not (math.isfinite(float(norm)) and math.isfinite(float(self._tr_loss))))
        if self._skip:
            for parameter in model.parameters():
                parameter.grad = None
        return norm

    def _maybe_log_save_evaluate(self, tr_loss: Any, grad_norm: Any, *args: Any, **kwargs: Any) -> None:
        """After each optimiser step: record it, evaluate, save, see whether to stop."""
        step = self.state.global_step
        if step == self._settled:  # called once more at the end of an epoch
            return
        self._settled = step
        if self._skip:
            self._count_skipped(step)
        if self.skipped_steps >= self.hooks.max_nonfinite and self.failure is None:
            self._stop_for(self._nonfinite_error(step))
        self.control.should_log, self.control.should_save, self.control.should_evaluate = True, False, False
        try:
            super()._maybe_log_save_evaluate(tr_loss, grad_norm, *args, **kwargs)  # type: ignore[misc]
        except TrainerError as error:  # a stop rule of the run's health
            self._stop_for(error)
        if self._skip:
            tr_loss.zero_()  # what is not a number stays so when it is subtracted from itself
        self._after(step)
        self._began = time.perf_counter()

    def _after(self, step: int) -> None:
        """Save, evaluate, stop: in this order, and decided alike on all ranks."""
        context, last = self.hooks.context, step >= self.state.max_steps
        self.failed, stopping = self.agree(self.failure is not None, context.stopping)
        if self.failed:  # by a stop rule on rank 0, which says which
            self.control.should_training_stop = True
        if stopping:
            self._interrupt()
        due = not (last or self.failed or stopping) and context.should_evaluate(step)
        if due or last or self.failed or stopping or step % self.hooks.save_every == 0:
            self.save_now()
        if due:
            self.evaluate_now(step)
            if self.is_stopping():
                self._interrupt()

    def _interrupt(self) -> None:
        self.stopped = "interrupted"
        self.control.should_training_stop = True

    def begin(self) -> None:
        """Called just before train()."""
        self._began = time.perf_counter()

    def settle_best(self, step: int) -> None:
        """After an evaluation: let the checkpoint go that was the best until then."""
        if self.is_first() and self.hooks.context.is_best(step):
            checkpoints.prune(self.hooks.context.folder, keep=self.hooks.plan.keep_checkpoints, best=step)

    def evaluate_now(self, step: int, *, final: bool = False) -> dict[str, float]:
        """The run's suites with the weights as they are; what is drawn meanwhile does not change training.

        Rank 0 evaluates, the others wait for it. `broken_off` says whether a stop came in between.
        """
        context = self.hooks.context
        with same_random_state():
            found = context.evaluate(step, final=final)
        (self.broken_off,) = self.agree(self.is_first() and context.stopping and not found)
        if self.is_first() and not self.broken_off:
            checkpoints.note_evaluated(context.folder, step)
            self.settle_best(step)
        self.accelerator.wait_for_everyone()
        return found

    def load_weights(self, folder: Path, step: int) -> None:
        """A checkpoint's weights alone, with no further step in view."""
        self._load_from_checkpoint(str(folder))  # type: ignore[attr-defined]
        self.state.global_step = step

    def evaluate_failed(self, step: int) -> None:
        """A run that a rule ends is evaluated too, if its weights are numbers; its own error is the one that counts."""
        (broken,) = self.agree(not self.weights_finite())
        if broken:
            return
        try:
            self.evaluate_now(step, final=True)
        except AtroposError as error:
            self.hooks.context.warn(f"no final evaluation: {error.message}")

    def _stop_for(self, error: AtroposError) -> None:
        self.failure = error
        self.control.should_training_stop = True

    # Records ---------------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Hand the numbers of a step to the run's records; nothing is printed."""
        super().log(logs, start_time)  # type: ignore[misc]
        if "train_runtime" in logs or "loss" not in logs:
            return
        numbers = {
            name: float(value)
            for name, value in logs.items()
            if name not in _NOT_METRICS and isinstance(value, int | float) and not isinstance(value, bool)
        }
        numbers.setdefault("step_time", time.perf_counter() - self._began)
        numbers["skipped_steps"] = float(self.skipped_steps)
        self.last_metrics = numbers
        self.hooks.context.report(self.state.global_step, numbers)

    # Numbers that are none -------------------------------------------------------------------------------------------

    def _count_skipped(self, step: int) -> None:
        self.skipped_steps += 1
        self.hooks.context.warn(
            f"step {step}: the loss or its gradient is not a finite number; the step is skipped "
            f"({self.skipped_steps} so far, the run stops at {self.hooks.max_nonfinite})"
        )

    def _nonfinite_error(self, step: int) -> TrainerError:
        good = checkpoints.checkpoints(self.hooks.context.folder)
        last = f"; the last good checkpoint is {good[-1][1].name}" if good else ""
        return TrainerError(
            f"{self.skipped_steps} steps had a loss or gradient that is not a finite number (the last was step {step})"
            f"{last}",
            hint="lower --learning-rate, give --precision fp32, or look at the rewards and logprobs of the last rows",
        )

    def weights_finite(self) -> bool:
        """Are all trained weights finite numbers?"""
        import torch

        with torch.no_grad():
            return all(bool(torch.isfinite(p.sum())) for p in self.model.parameters() if p.requires_grad)

    # Checkpoints -----------------------------------------------------------------------------------------------------

    def save_now(self) -> None:
        """Save this step's checkpoint and let older ones go. Never from weights that are not finite."""
        step, context = self.state.global_step, self.hooks.context
        if self._saved == step:
            return
        if not self.weights_finite():
            context.warn(f"step {step}: the weights are not finite numbers; no checkpoint is written")
            return
        files = self._state_files()
        if not self.is_first():
            self._saved = step
            return
        try:
            checkpoints.save(
                context.folder,
                step,
                lambda folder: self._write_checkpoint(folder, files),
                needed=self.checkpoint_bytes(),
            )
        except TrainerError as error:
            if self.failure is None and self.stopped is None and step < self.state.max_steps:
                context.warn(f"{error.message}; training goes on")
                return
            raise
        self._saved = step
        keep = self.hooks.plan.keep_checkpoints
        checkpoints.prune(context.folder, keep=keep, best=self._best_step())

    def _best_step(self) -> int | None:
        found = [step for step, _ in checkpoints.checkpoints(self.hooks.context.folder)]
        return next((step for step in found if self.hooks.context.is_best(step)), None)

    def _state_files(self) -> dict[str, bytes]:
        """What only each rank knows, of all ranks: the random state, the batch in use. A collective operation."""
        files = {} if self.hooks.extra_state is None else self.hooks.extra_state(self)
        if self.accelerator.num_processes == 1:
            return files
        from accelerate.utils import gather_object

        with tempfile.TemporaryDirectory() as folder:
            super()._save_rng_state(folder)  # type: ignore[misc]
            files |= {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        gathered: list[tuple[str, bytes]] = gather_object(list(files.items()))
        return dict(gathered)

    def store_flos(self) -> None:
        """Rank 0 writes checkpoints alone: no collective operation meanwhile (the numbers were joined in `log`)."""
        if not self._writing:
            super().store_flos()  # type: ignore[misc]

    def _write_checkpoint(self, folder: Path, files: dict[str, bytes]) -> None:
        """transformers writes `checkpoint-N` below its output folder; the content is what counts."""
        inner = folder / ".inner"
        old, self.args.output_dir = self.args.output_dir, str(inner)
        self._writing = True
        try:
            super()._save_checkpoint(self.model, None)  # type: ignore[misc]
        finally:
            self.args.output_dir, self._writing = old, False
        made = inner / f"checkpoint-{self.state.global_step}"
        for path in list(made.iterdir()):
            path.rename(folder / path.name)
        shutil.rmtree(inner)
        for name, content in files.items():
            (folder / name).write_bytes(content)

    def checkpoint_bytes(self) -> int:
        """About what a checkpoint takes: trained weights, Adam's two moments, the small files."""
        trained = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        return int(trained) * (FLOAT_BYTES + ADAM_BYTES) + STATE_BYTES
