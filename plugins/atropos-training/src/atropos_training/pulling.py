"""The session of `train grpo --from URL`: batches come from a trajectory server, weights go to those who sample.

Before each batch the weights are left in RUN/weights, for the runs of `gen --to` to take, and given to the inference
servers of --base-url. Rollouts of weights that are too old are left out of the step.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ScoredGroup
from atropos_cli.sdk.data import atomic_write
from atropos_cli.sdk.models import loading_model
from atropos_cli.sdk.runs import Plan
from atropos_cli.sdk.training import Trainer, TrainResult
from atropos_cli.sdk.trajectories import MARKER, Pull, read_marker
from atropos_training.batches import Batches
from atropos_training.order import task_digests
from atropos_training.session import TrainSession
from atropos_training.staleness import ages, without, without_old

WEIGHTS = "weights"
_CONTEXT = 2048


class PullSession(TrainSession):
    """See the module."""

    _batches: Batches
    _given: int | None = None
    _done: int | None = None
    _finished = False
    _told_temperature = False
    _about: dict[str, float]

    def _prepare_rollouts(self, plan: Plan, held_out: frozenset[bytes]) -> None:
        """No environment: the file of the batches, and the server."""
        self._about = {}
        self._open_writer()
        self._batches = Batches(self._pull.url, plan.digest, self.folder / "groups.jsonl", self.warn)
        trainer: type[Trainer] = self._registry.find("trainer", self.plan.trainer.name).load()
        self._batches.group_size = plan.group_size if trainer.equal_groups else None
        self._batches.look()

    def roll(self, places: Sequence[int], *, step: int) -> list[list[ScoredGroup]]:
        """The groups of the next batch, one to a place as far as they go; none when the run is asked to stop."""
        assert self._writer is not None
        self._locate(step)
        self._give(step)
        if self._given is None:
            self._batches.register(self._registration())
        self._given = step
        self._batches.vocabulary = self._vocabulary()
        groups = self._batches.of(step, self._writer, lambda: self.stopping)
        self._about = {"batch/wait": self._batches.waited}
        self._check_temperature(groups)
        kept = [group for group in groups if self._held_out.digests.isdisjoint(task_digests(group.task))]
        self._about["batch/held_out"] = float(len(groups) - len(kept))
        if len(kept) < len(groups) and not self._told_skipped:
            self._told_skipped = True
            self.warn("groups that ask what tasks of an evaluation ask are left out")
        if groups and not kept:  # a batch all the same, for trainers that want one
            kept = [without(groups[0], lambda rollout: True)]
        groups = [without_old(group, step, self._pull.off_policy) for group in kept]
        self._about |= ages(groups, step)
        self._show(step, groups)
        found = [[group] for group in groups[: len(places)]]
        if groups[len(places) :]:
            found[-1].extend(groups[len(places) :])
        return found + [[] for _ in range(len(places) - len(found))] if groups else []

    def _vocabulary(self) -> int | None:
        embeddings = getattr(self._model, "get_input_embeddings", None)
        shape = getattr(getattr(embeddings and embeddings(), "weight", None), "shape", None)
        return int(shape[0]) if shape else None

    def _check_temperature(self, groups: Sequence[ScoredGroup]) -> None:
        assert self.plan.rollouts is not None
        own = self.plan.rollouts.sampling.temperature or 1.0
        given = {group.task.info.get("temperature", own) for group in groups}
        others = {value for value in given if isinstance(value, int | float)} - {own}
        if others and not self._told_temperature:
            self._told_temperature = True
            shown = ", ".join(f"{value:g}" for value in sorted(others))
            self.warn(f"groups were sampled at temperature {shown}, and are trained on with --temperature {own:g}")

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """See TrainContext; with the numbers of the step's batch."""
        self._done = step
        super().report(step, {**metrics, **self._about})

    def carry(self, trainer: Trainer) -> TrainResult:
        """See TrainSession."""
        result = super().carry(trainer)
        self._finished = result.stopped is None
        return result

    def close(self) -> None:
        """See TrainSession. The weights stay for those who sample, until all steps are done."""
        if getattr(self, "_batches", None) is not None:
            self._batches.close()
        super().close()
        if self._finished or self._done == self.plan.steps:
            place = self.folder / WEIGHTS
            with contextlib.suppress(OSError):  # what is left is no reason to fail
                (place / MARKER).unlink(missing_ok=True)  # first, so that nobody is sent to what is gone
                for folder in place.glob("step-*"):
                    _remove(folder)
                shutil.rmtree(place, ignore_errors=True)

    @property
    def _pull(self) -> Pull:
        assert self.plan.pull is not None
        return self.plan.pull

    def _registration(self) -> dict[str, Any]:
        plan, rollouts = self.plan, self.plan.rollouts
        assert rollouts is not None
        config = getattr(self._model, "config", None)
        context = getattr(config, "max_position_embeddings", None)
        return {
            "wandb_group": plan.run_group or "",
            "wandb_project": plan.project or "",
            "batch_size": plan.prompts_per_step * rollouts.group_size,
            "max_token_len": context if isinstance(context, int) else _CONTEXT,
            "checkpoint_dir": str((self.folder / WEIGHTS).resolve()),
            "save_checkpoint_interval": plan.save_every or 0,
            "num_steps": plan.steps,
        }

    # Weights ----------------------------------------------------------------------------------------------------------

    def _give(self, step: int) -> None:
        """Leave the weights of this step where others find them, the marker last; the one before stays readable."""
        if self._given == step or self._model is None:
            return
        place = self.folder / WEIGHTS
        place.mkdir(exist_ok=True)
        name = None
        earlier = read_marker(place)
        # Else all have the weights that this trainer begins with. An earlier session may have left them all the same.
        if step or self._batches.served() or (earlier is not None and earlier.folder is not None):
            writing = place / ".writing"
            shutil.rmtree(writing, ignore_errors=True)
            try:
                with loading_model():
                    self._model.save_pretrained(writing)
                    self._tokenizer.save_pretrained(writing)
                name = _free(place, f"step-{step}")
                writing.rename(place / name)
            finally:
                shutil.rmtree(writing, ignore_errors=True)  # where it failed: the disk may be full
        backend = None if self._in_process else self._backend
        if backend is not None and self._loop is not None:
            self._push(backend, self._loop, step)
        marker = {"version": step, "folder": name, "pushed": backend is not None}
        atomic_write(place / MARKER, json.dumps(marker).encode() + b"\n")
        for old in place.glob("step-*"):
            if old.stem not in (f"step-{step}", f"step-{step - 1}"):
                _remove(old)


def _remove(folder: Path) -> None:
    """Out of the sight of those who read at once: half a folder would look like another model."""
    gone = folder.with_name(".removing")
    shutil.rmtree(gone, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder = folder.rename(gone)
    shutil.rmtree(folder, ignore_errors=True)


def _free(place: Path, name: str) -> str:
    """The name, or with a number where it is taken: by a session that was killed, whose weights others read now."""
    names = itertools.chain((name,), (f"{name}.{number}" for number in itertools.count(1)))
    return next(found for found in names if not (place / found).exists())
