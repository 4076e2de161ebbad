"""Where a run is reported beside its own folder. None of it changes what comes out."""

from __future__ import annotations

from pydantic import Field

from atropos_cli.domain.base import Frozen


class Tracking(Frozen):
    """The trackers of a run, and what the run is called there."""

    trackers: tuple[str, ...] = Field(
        default=(), description="wandb, tensorboard, or a plugin's tracker; the run folder has its records anyway."
    )
    project: str | None = Field(default=None, description="Project at the tracker; default: WANDB_PROJECT, or atropos.")
    entity: str | None = Field(default=None, description="User or team at the tracker; default: WANDB_ENTITY.")
    run_name: str | None = Field(default=None, description="Name of the run at the tracker; default: the folder's.")
    run_group: str | None = Field(default=None, description="Group of runs at the tracker; default: WANDB_RUN_GROUP.")
    tags: tuple[str, ...] = Field(default=(), description="Tag of the run at the tracker.")

    def over(self, other: Tracking) -> Tracking:
        """These settings, and those of another where nothing was said here."""
        names = self.model_fields_set & Tracking.model_fields.keys()
        return Tracking.model_validate({**_given(other), **{name: getattr(self, name) for name in names}})


class RolloutTracking(Tracking):
    """That of `gen` and `eval`, where no step says when it is time to report."""

    track_every: float = Field(default=10.0, ge=0.5, description="Seconds between two reports to the trackers.")
    track_samples: int = Field(default=8, ge=0, le=100, description="Rollouts shown at the trackers when the run ends.")


def _given(tracking: Tracking) -> dict[str, object]:
    return {name: getattr(tracking, name) for name in tracking.model_fields_set & Tracking.model_fields.keys()}
