"""The plan of a training run: what is trained, on what, judged by what. A cluster carries out the same plan."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.delivery import Pull
from atropos_cli.domain.methods import METHODS, Learns
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import ComponentRef, RewardRef
from atropos_cli.domain.runplan import RunPlan
from atropos_cli.domain.tracking import Tracking

Rule = Literal["non-finite", "zero-std", "truncated", "kl", "entropy", "plateau"]


class EvalSuite(Frozen):
    """A fixed set of tasks that the model is judged by while it trains. `plan` is greedy unless told otherwise."""

    name: str
    plan: Plan


class HealthRules(Frozen):
    """When a rule speaks. `*_steps`: optimiser steps in a row that show the trouble."""

    stop: tuple[Rule, ...] = Field(default=(), description="Rules that end training instead of warning.")
    off: tuple[Rule, ...] = Field(default=(), description="Rules that are not looked at.")
    nonfinite_steps: int = Field(default=5, ge=1, description="Steps in a row of non-finite loss that end training.")
    zero_std_share: float = Field(default=0.9, gt=0, le=1, description="Share of groups whose rewards do not differ.")
    zero_std_steps: int = Field(default=5, ge=1, description="Steps in a row of that share.")
    truncated_share: float = Field(default=0.9, gt=0, le=1, description="Share of completions that were cut.")
    truncated_steps: int = Field(default=1, ge=1, description="Steps in a row of that share.")
    kl_most: float = Field(default=1.0, gt=0, description="KL to the reference model per token, in nats.")
    kl_steps: int = Field(default=3, ge=1, description="Steps in a row above it.")
    entropy_share: float = Field(default=0.1, gt=0, lt=1, description="Share that is left of the first steps' entropy.")
    entropy_steps: int = Field(default=5, ge=1, description="Steps in a row below it.")
    plateau_steps: int = Field(default=100, ge=2, description="Steps without a better mean reward.")
    plateau_gain: float = Field(default=0.01, ge=0, description="Gain in mean reward that counts as better.")


class TrainPlan(RunPlan):
    """A resolved training run.

    method: its name; learns: the kind of data it needs.
    access: options of the trainer that do not decide the weights, such as a server's address.
    rollouts: how live groups are rolled (`train grpo --env`): environment, rewards, sampling, group size;
    None when training on stored data. pull: other programs roll them, and a trajectory server gives them.
    rewards: what scores completions of stored prompts (grpo on data).
    steps: optimiser steps; None: until all data were used `epochs` times.
    accept_changed_data: a resumed run may continue with other rows than those it learnt from.
    group_timeout: seconds that the rewards of one group of completions may take (grpo on data).
    prompts_per_step: groups, or rows of data, that make one optimiser step.
    async_steps: how many steps old the weights may be that sampled a token; 0: rollouts and optimiser take turns.
    """

    schema_version: int = 1
    atropos_version: str
    command: Literal["train"] = "train"
    method: str
    learns: Learns
    trainer: ComponentRef
    access: JsonDict = Field(default_factory=dict)
    model: str
    data: tuple[str, ...] = ()
    rollouts: Plan | None = None
    pull: Pull | None = None
    rewards: tuple[RewardRef, ...] = ()
    seed: int = 0
    group_timeout: float = Field(default=3600.0, gt=0)
    steps: int | None = Field(default=None, ge=1)
    epochs: int = Field(default=1, ge=1)
    prompts_per_step: int = Field(default=8, ge=1)
    async_steps: int = Field(default=0, ge=0)
    suites: tuple[EvalSuite, ...] = ()
    eval_every: int | None = Field(default=None, ge=1)
    save_every: int | None = Field(default=None, ge=1)
    keep_checkpoints: int = Field(default=2, ge=1)
    accept_changed_data: bool = False
    health: HealthRules = Field(default_factory=HealthRules)
    trackers: tuple[str, ...] = ()
    project: str | None = None
    entity: str | None = None
    run_name: str | None = None
    run_group: str | None = None
    tags: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _learns(cls, data: Any) -> Any:
        """Plans of 0.1.0 do not say what their method learns from."""
        if isinstance(data, dict) and "learns" not in data and (known := METHODS.get(data.get("method", ""))):
            return {**data, "learns": known.learns}
        return data

    @property
    def tracking(self) -> Tracking:
        """Where the run is reported beside its own folder."""
        return Tracking(**{name: getattr(self, name) for name in Tracking.model_fields})

    def beside(self, other: RunPlan) -> RunPlan:
        """Options that either plan counts as access decide nothing: older versions had some in the trainer's config."""
        if not isinstance(other, TrainPlan) or not (moved := self.trainer.config.keys() & other.access.keys()):
            return self
        kept = {name: value for name, value in self.trainer.config.items() if name not in moved}
        found: TrainPlan = self.replace(trainer=self.trainer.replace(config=kept))
        return found

    def identity(self) -> JsonDict:
        """The part that decides which weights come out; a run may be resumed under a plan of the same identity."""
        beside = {"atropos_version", "access", "suites", "eval_every", "save_every", "keep_checkpoints", "health"}
        beside |= {
            "learns",
            "steps",
            "epochs",
            "rollouts",
            "pull",
            "group_timeout",
            "accept_changed_data",
            "async_steps",
            *Tracking.model_fields,
        }
        data = self.model_dump(mode="json", exclude=beside)
        data["trainer"].pop("version", None)
        if self.async_steps:  # how many may change in a resumed run; whether any may not
            data["asynchronous"] = True
        for reward in data["rewards"]:
            reward.pop("access", None)
        if self.rollouts is not None:
            data["rollouts"] = self.rollouts.identity()
        return data
