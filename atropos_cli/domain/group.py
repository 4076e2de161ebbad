"""A scored group: the rollouts of one task, with rewards and advantages. What is written and trained on."""

from __future__ import annotations

from pydantic import model_validator

from atropos_cli.domain.base import Frozen
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task

SCHEMA_VERSION = 1


class ScoredGroup(Frozen):
    """All rollouts of one task (or at one turn of an episode).

    schema_version, group_id and last stand first, so that a resumed run reads them without parsing lines.
    last: False while more groups of the same task follow; a run is resumed after a `last` group.
    advantages: one value per rollout, None for a rollout without a reward.
    episode_id, turn: set when the group is one turn of an episode.
    """

    schema_version: int = SCHEMA_VERSION
    group_id: str
    last: bool = True
    env: str
    task: Task
    rollouts: tuple[Rollout, ...]
    advantages: tuple[float | None, ...] | None = None
    model: str
    seed: int | None = None
    episode_id: str | None = None
    turn: int | None = None

    @model_validator(mode="after")
    def _lengths(self) -> ScoredGroup:
        if self.advantages is not None and len(self.advantages) != len(self.rollouts):
            raise ValueError(f"{len(self.advantages)} advantages for {len(self.rollouts)} rollouts")
        return self

    @property
    def failed(self) -> int:
        """How many rollouts have no reward."""
        return sum(1 for rollout in self.rollouts if rollout.reward is None)


def make_group_id(digest: str, index: int, turn: int | None = None) -> str:
    """The id of the group of task `index` under a plan: "<first 10 of the digest>-<index>[.<turn>]".

    The same plan gives the same ids on every machine, so shards merge and resumed runs match.
    """
    base = f"{digest[:10]}-{index}"
    return base if turn is None else f"{base}.{turn}"


def parse_group_id(group_id: str) -> tuple[str, int]:
    """(digest prefix, task index) of an id made by make_group_id. Raises ValueError for any other text."""
    prefix, separator, rest = group_id.rpartition("-")
    if not separator or not prefix:
        raise ValueError(f"not a group id of a run: {group_id!r}")
    return prefix, int(rest.partition(".")[0])
