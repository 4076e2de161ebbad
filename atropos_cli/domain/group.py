"""A scored group: the attempts at one task, with rewards and advantages. What is written and trained on."""

from __future__ import annotations

from pydantic import model_validator

from atropos_cli.domain.base import Frozen
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task

SCHEMA_VERSION = 1


class ScoredGroup(Frozen):
    """All attempts at one task (or at one turn of an episode).

    schema_version and group_id stand first, so that a resumed run finds the ids without parsing lines.
    advantages: one value per rollout, None for a rollout without a reward.
    episode_id, turn: set when the group is one turn of an episode.
    last: False while more groups of the same task follow; a run is resumed after a `last` group.
    """

    schema_version: int = SCHEMA_VERSION
    group_id: str
    env: str
    task: Task
    rollouts: tuple[Rollout, ...]
    advantages: tuple[float | None, ...] | None = None
    model: str
    seed: int | None = None
    episode_id: str | None = None
    turn: int | None = None
    last: bool = True

    @model_validator(mode="after")
    def _lengths(self) -> ScoredGroup:
        if self.advantages is not None and len(self.advantages) != len(self.rollouts):
            raise ValueError(f"{len(self.advantages)} advantages for {len(self.rollouts)} rollouts")
        return self

    @property
    def failed(self) -> int:
        """How many rollouts have no reward."""
        return sum(1 for rollout in self.rollouts if rollout.reward is None)
