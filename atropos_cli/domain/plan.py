"""The plan: everything a run needs, resolved and serialisable. A cluster executes the same plan."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.delivery import Delivery
from atropos_cli.domain.refs import ComponentRef, RewardRef, ToolsRef
from atropos_cli.domain.runplan import RunPlan
from atropos_cli.domain.selection import Member, Selection
from atropos_cli.domain.tracking import RolloutTracking

AdvantageKind = Literal["grpo", "dr_grpo", "rloo", "role_mean", "rae", "none"]


def parse_shard(text: str) -> tuple[int, int]:
    """(index, count) of "2/8", counted from 0. Raises ValueError."""
    index, slash, count = text.partition("/")
    if not (slash and index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise ValueError(f"{text!r} is no shard: give INDEX/COUNT, counted from 0, such as 0/4")
    return int(index), int(count)


class Sampling(Frozen):
    """Sampling parameters, by their OpenAI names. None leaves the choice to the server."""

    max_tokens: int | None = Field(default=1024, ge=1, description="Most tokens a completion may have.")
    temperature: float | None = Field(default=1.0, ge=0, description="Sampling temperature; 0 is greedy.")
    top_p: float | None = Field(default=None, gt=0, le=1, description="Nucleus sampling mass.")
    top_k: int | None = Field(
        default=None, ge=-1, description="Sample among the k most likely tokens (SGLang, vLLM, local)."
    )
    min_p: float | None = Field(
        default=None, ge=0, le=1, description="Least probability relative to the top token (SGLang, vLLM, local)."
    )
    stop: tuple[str, ...] = Field(default=(), description="Text that ends a completion.")


class Execution(Frozen):
    """How the run is carried out. None of it changes which groups come out, so none of it is in the digest."""

    workers: int = Field(default=8, ge=1, description="Requests kept in flight.")
    retries: int = Field(default=5, ge=0, description="Retries that the requests of one group may use together.")
    group_timeout: float = Field(default=3600.0, gt=0, description="Seconds a group may take, pauses not counted.")
    request_timeout: float = Field(default=600.0, gt=0, description="Seconds to wait for one answer.")
    max_wait: float = Field(default=45.0, ge=0, description="Seconds to wait for a dead server before giving up.")
    max_failure_rate: float = Field(
        default=0.0, ge=0, le=1, description="Share of failed rollouts above which the exit code is 1."
    )
    same_failures: int = Field(
        default=32,
        ge=0,
        description="Identical failures to reset, step or score, with no success, that end the run; 0 never does.",
    )
    drain: float = Field(default=30.0, ge=0, description="Seconds that running groups get after Ctrl-C or SIGTERM.")
    fsync: Literal["group", "interval", "never"] = Field(
        default="interval", description="When written groups are forced to disk."
    )
    shard: str | None = Field(
        default=None, description="INDEX/COUNT: only the tasks of this shard, 0/4 to 3/4; atropos merge joins the runs."
    )

    max_cost: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Money that the run may cost, with its earlier sessions; a shard has its share. Needs prices.",
    )
    cache: bool = Field(default=False, description="Keep replies, and take those that are kept: a hit costs nothing.")
    cache_dir: str | None = Field(
        default=None, min_length=1, description="Folder of kept replies; implies --cache. [default: the user's cache]"
    )
    cache_size: float = Field(default=4000.0, gt=0, description="Megabytes of kept replies; the oldest make room.")

    @field_validator("shard")
    @classmethod
    def _is_shard(cls, text: str | None) -> str | None:
        if text is not None:
            parse_shard(text)
        return text


class RoleRef(Frozen):
    """Who plays a role. backend None: the policy, with this sampling; the limits are then the run's."""

    backend: ComponentRef | None = None
    model: str | None = None
    sampling: Sampling = Field(default_factory=Sampling)
    workers: int = Field(default=8, ge=1)
    retries: int = Field(default=5, ge=0)
    request_timeout: float = Field(default=600.0, gt=0)
    refresh: int | None = Field(default=None, ge=1)
    """Steps after which a frozen copy of the policy, which then plays the role, is renewed."""

    def identity(self) -> JsonDict:
        """The part that decides what it says."""
        name = None if self.backend is None else self.backend.name
        found: JsonDict = {"backend": name, "model": self.model, "sampling": self.sampling.model_dump(mode="json")}
        return found if self.refresh is None else {**found, "refresh": self.refresh}


class Plan(RunPlan):
    """A resolved run. `digest` covers the results, not how fast or where.

    mixture: where the environment is a mixture, its members; they have the rewards. prompt: the texts that the
    environment writes its messages with, as read from its file or the user's.
    """

    schema_version: int = 1
    atropos_version: str
    command: Literal["gen"] = "gen"
    environment: ComponentRef
    mixture: tuple[Member, ...] = ()
    prompt: JsonDict = Field(default_factory=dict)
    rewards: tuple[RewardRef, ...] = ()
    backend: ComponentRef
    model: str | None = None
    sampling: Sampling = Field(default_factory=Sampling)
    logprobs: Literal["auto", "require", "off"] = "auto"
    group_size: int = Field(default=8, ge=1)
    split: str = "train"
    seed: int = 0
    limit: int | None = Field(default=None, ge=1)
    advantage: AdvantageKind = "grpo"
    writer: ComponentRef = Field(default_factory=lambda: ComponentRef(name="jsonl"))
    execution: Execution = Field(default_factory=Execution)
    tracking: RolloutTracking = Field(default_factory=RolloutTracking)
    delivery: Delivery = Field(default_factory=Delivery)
    prices: JsonDict = Field(default_factory=dict)
    roles: dict[str, RoleRef] = Field(default_factory=dict)
    tools: tuple[ToolsRef, ...] = ()
    selection: Selection = Field(default_factory=Selection)

    @model_serializer(mode="wrap")
    def _without_empty_parts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        if not self.tracking.trackers:
            data.pop("tracking", None)
        if self.delivery.to is None:
            data.pop("delivery", None)
        for name in ("roles", "tools", "mixture", "prompt"):
            if not getattr(self, name):
                data.pop(name, None)
        if self.selection == Selection():
            data.pop("selection", None)
        return data

    @property
    def most_rollouts(self) -> int:
        """The size of the largest groups."""
        return max((member.group_size or self.group_size for member in self.mixture), default=self.group_size)

    def identity(self) -> JsonDict:
        """The part of the plan that decides what comes out; two runs with the same identity may be joined.

        `limit` is left out (a run may be made longer), and so are where the model is served and who is told of it.
        """
        beside = {"execution", "tracking", "delivery", "prices", "limit", "atropos_version", "writer", "backend"}
        data = self.model_dump(mode="json", exclude=beside)
        data["backend"] = {"name": self.backend.name}
        if self.roles:
            data["roles"] = {name: role.identity() for name, role in self.roles.items()}
        if self.tools:
            data["tools"] = [ref.identity() for ref in self.tools]
        members = data.get("mixture", ())
        rewards = [reward for owner in (data, *members) for reward in owner["rewards"]]
        for ref in (data["environment"], *(member["environment"] for member in members), *rewards):
            ref.pop("version", None)
            ref.pop("access", None)
        return data
