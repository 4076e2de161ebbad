"""Which tasks a run takes: the members of a mixture, and what its results so far change."""

from __future__ import annotations

from pydantic import Field

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.refs import ComponentRef, RewardRef


class Member(Frozen):
    """One environment of a mixture. name: of its groups, as `env`. group_size None: as the run's.

    split: the split of its own that stands for the run's.
    """

    name: str
    weight: float = Field(default=1.0, gt=0)
    environment: ComponentRef
    rewards: tuple[RewardRef, ...] = ()
    group_size: int | None = Field(default=None, ge=1)
    split: str = "train"
    prompt: JsonDict = Field(default_factory=dict)


class Selection(Frozen):
    """How results decide what is rolled out next."""

    curriculum: str | None = Field(
        default=None,
        min_length=1,
        description="Key in the info of tasks, such as difficulty: kinds solved at the target rate come more often.",
    )
    curriculum_target: float = Field(
        default=0.5, gt=0, lt=1, description="Success rate (mean reward as part of full marks) to stay near."
    )
    curriculum_window: int = Field(
        default=32, ge=1, le=10_000, description="Tasks of a round, and the last results of a kind that count."
    )
    curriculum_replay: float = Field(
        default=0.0, ge=0, lt=1, description="Share of tasks that were solved below the target and come again."
    )
    adaptive: bool = Field(
        default=False,
        description="Stop a group whose first half has equal rewards; further tasks get the rollouts that this saves.",
    )
