"""Trackers: Weights & Biases and TensorBoard. atropos loads this module first: it names the rest."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_trackers() -> Iterable[ComponentSpec]:
    yield ComponentSpec(
        "tracker",
        "wandb",
        "atropos_tracking.wandb:WandbTracker",
        summary="Weights & Biases, online or below the run folder.",
        requires=("wandb",),
        extra="wandb",
    )
    yield ComponentSpec(
        "tracker",
        "tensorboard",
        "atropos_tracking.tensorboard:TensorBoardTracker",
        summary="TensorBoard event files in the run folder.",
    )
