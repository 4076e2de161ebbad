"""The settings of each command, as one typed model after all sources are merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from atropos_cli.config.pricefile import read_prices
from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.delivery import Delivery
from atropos_cli.domain.plan import AdvantageKind, Execution, Sampling
from atropos_cli.domain.selection import Selection
from atropos_cli.domain.tracking import RolloutTracking


class GenSettings(Frozen):
    """Everything `atropos gen` can be told, except where the output goes and the environment's own options."""

    model: str | None = Field(
        default=None, description="Model to sample from; default: the first one the server lists."
    )
    backend: str = Field(default="auto", description="Inference backend; auto picks by --model and --base-url.")
    backend_options: JsonDict = Field(default_factory=dict, description="Options of the backend's own Config.")
    sampling: Sampling = Field(default_factory=Sampling)
    logprobs: Literal["auto", "require", "off"] = Field(
        default="auto", description="Token ids and logprobs: take them if offered, insist, or leave them out."
    )
    group_size: int = Field(default=8, ge=1, description="Rollouts per task.")
    limit: int | None = Field(
        default=None, ge=1, description="Number of tasks; default: all, or 100 of an endless stream."
    )
    split: str = Field(default="train", description="Split of the environment's tasks.")
    seed: int = Field(default=0, description="Seed of task order and sampling.")
    rewards: tuple[str, ...] = Field(
        default=(), description="NAME or NAME=WEIGHT, repeated; default: the environment's own rewards."
    )
    reward_options: JsonDict = Field(default_factory=dict, description="Options of rewards, by name of the reward.")
    roles: tuple[str, ...] = Field(
        default=(), description="Role that another model may play, repeated; see --role.NAME.model."
    )
    role_options: JsonDict = Field(default_factory=dict, description="Options of roles, by name of the role.")
    tools: tuple[str, ...] = Field(
        default=(),
        description="Tools for the model, repeated: NAME:TARGET, such as mcp:COMMAND or mcp:URL.",
    )
    tools_options: JsonDict = Field(default_factory=dict, description="Options of sources of tools, by name.")
    selection: Selection = Field(default_factory=Selection)
    prompt: Path | None = Field(
        default=None, description="TOML file of prompts in the place of the environment's own (atropos env info ENV)."
    )
    advantage: AdvantageKind = Field(default="grpo", description="How advantages are computed in a group.")
    writer: str = Field(default="jsonl", description="jsonl or jsonl.zst.")
    execution: Execution = Field(default_factory=Execution)
    tracking: RolloutTracking = Field(default_factory=RolloutTracking)
    delivery: Delivery = Field(default_factory=Delivery)
    prices: str | JsonDict = Field(
        default_factory=dict,
        description="TOML file of prices per million tokens, by model (a section [prices] in a configuration file).",
    )

    @field_validator("prices", mode="before")
    @classmethod
    def _whole_prices(cls, value: Any) -> JsonDict:
        """The table itself, checked: a plan holds all that a run needs, wherever it is carried out."""
        if not isinstance(value, str | dict):
            raise ValueError("expected a file of prices, or a section [prices]")
        return read_prices(value)
