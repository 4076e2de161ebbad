"""The settings of `atropos train`: section [train] of the files, and [trainer] for the trainer's own options."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel

from atropos_cli.sdk import Field
from atropos_cli.sdk.engine import Tracking
from atropos_cli.sdk.planning import Bucket
from atropos_cli.sdk.training import HealthRules

TRAIN = "train"
TRAINER = "trainer"


class TrainSettings(Tracking):
    """What `atropos train` can be told beyond the trainer's own options and those of the rollouts.

    How it is tracked may stand in [tracking] as well, as for `gen`.
    """

    env: str | None = Field(
        default=None, description="Environment to roll out while training (grpo); its options are --env.NAME."
    )
    data: tuple[str, ...] = Field(
        default=(), description="Run folder or file to train on, repeatable: rollouts, rows of sft-gen or dpo-gen."
    )
    source: str | None = Field(
        default=None, description="Trajectory server whose batches to train on (grpo): atropos serve, or run-api."
    )
    off_policy: int = Field(
        default=8, ge=0, description="With --from: leave out rollouts sampled more than this many steps ago."
    )
    async_steps: int = Field(
        default=0,
        ge=0,
        description="With --env: sample while the optimiser works, from weights at most this many steps old (trainer "
        "native); 0: they take turns.",
    )
    trainer: str = Field(
        default="trl",
        description="trl, native, or another installed one (atropos trainer list); default: trl where it has the "
        "method.",
    )
    steps: int | None = Field(default=None, ge=1, description="Optimiser steps; default: once over the data.")
    epochs: int = Field(
        default=1, ge=1, description="How often all tasks or data are used, where --steps is not given."
    )
    prompts_per_step: int = Field(
        default=8, ge=1, description="Groups (grpo) or rows of data that make one optimiser step."
    )
    evals: tuple[str, ...] = Field(
        default=(),
        description="Suite to evaluate on, as [LABEL=]ENV[:option=value,...]; also split, limit, samples, "
        "temperature, max_tokens. Always before and after training.",
    )
    eval_every: int | None = Field(default=None, ge=1, description="Evaluate every so many steps as well.")
    save_every: int | None = Field(
        default=None, ge=1, description="Checkpoint every so many steps; default: ten times in a run."
    )
    keep_checkpoints: int = Field(default=2, ge=1, description="Newest checkpoints to keep; the best one stays too.")
    accept_changed_data: bool = Field(
        default=False, description="Resume although the training data have changed; it is recorded."
    )
    health: HealthRules = Field(default_factory=HealthRules)


def train_bucket(model: type[TrainSettings] = TrainSettings) -> Bucket:
    """[train]: what to train on, for how long, judged by what. model: with the command's own options besides."""
    return Bucket(name=TRAIN, label="atropos train", model=model, section="train", prefix="TRAIN__")


def trainer_bucket(model: type[BaseModel], names: tuple[str, ...], installed: Collection[str] = ()) -> Bucket:
    """[trainer] and [trainers.NAME]: hyperparameters."""
    return Bucket(
        name=TRAINER,
        label=f"trainer {names[0]!r}",
        model=model,
        section="trainer",
        table="trainers",
        prefix="TRAINER__",
        names=names,
        installed=installed,
    )
