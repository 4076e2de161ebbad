"""Options of the agent: alternatives for every reply, memory, predictions, and what they earn."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from atropos_cli.sdk import Config, Field
from atropos_textworld.agent.memory import MemoryOptions

_TURN_ONLY = "only used with group_by turn"


class AgentOptions(Config):
    """Used with group_by "turn"; with "episode" any of them that differs from its default is an error."""

    group_by: Literal["episode", "turn"] = Field(
        default="episode",
        description="episode: a group is GROUP_SIZE independent games. turn: one game is played, every reply has "
        "GROUP_SIZE alternatives, and each turn is a group; the options below need this.",
    )
    choose: Literal["sampled", "first-valid", "best"] = Field(
        default="sampled",
        description="Which alternative is played on: one drawn among those with a command, the first with a command, "
        "or the one that scored best (needs score_all).",
    )
    score_all: bool = Field(
        default=False,
        description="Find out what the other alternatives would lead to, and score them too; else they get no reward.",
    )
    history_tokens: int = Field(
        default=8192, ge=256, description="Tokens a prompt may have; the oldest turns are left out of it."
    )
    thinking_history: Literal["strip", "keep", "summary"] = Field(
        default="strip", description="Thinking of earlier turns: left out, kept, or cut to its last sentences."
    )
    gamma: float = Field(default=0.99, ge=0, le=1, description="Discount a turn, for credit of later points.")
    combine: Literal["mean", "additive"] = Field(
        default="mean",
        description="mean: weighted mean, the game has the weight that is left; additive: weighted terms are added.",
    )
    vrcli: Literal["off", "discrete", "continuous"] = Field(
        default="off",
        description="Reward predictions of the outcome by how much they help to expect it (VR-CLI): as levels 0, 0.5, "
        "0.9, 1, or as the improvement itself.",
    )
    vrcli_weight: float = Field(default=0.3, ge=0, description="Weight of VR-CLI in the reward.")
    vrcli_thresholds: tuple[float, ...] = Field(
        default=(0.05, 1.0, 2.0), description="Improvements in percent from which the levels 0.5, 0.9 and 1 are given."
    )
    vrcli_tokens: int = Field(default=128, ge=1, description="Tokens of an outcome that are scored, at most.")
    vrcli_turns: int = Field(default=3, ge=0, description="Earlier turns that the scorer sees.")
    vrcli_control: Literal["none", "null", "shuffled"] = Field(
        default="none",
        description="Also score, for the report only, no prediction at all (null: must give 0) or that of an earlier "
        "turn (shuffled).",
    )
    scorer_url: str = Field(
        default="", description="Older name of --role.scorer.base-url: a server that scores predictions."
    )
    scorer_model: str = Field(default="", description="Older name of --role.scorer.model: the model at scorer_url.")
    latro_weight: float = Field(
        default=0.0,
        ge=0,
        description="Weight of LaTRO: mean log p (at most 0) of the tokens of the walkthrough's next command after the "
        "reply's thinking.",
    )
    format_weight: float = Field(default=0.1, ge=0, description="Weight of the form of the reply, 0 to 1.")
    length_scale: float = Field(
        default=0.0, ge=0, description="Share of the reward that a token more than length_baseline costs (0.0002)."
    )
    length_baseline: int = Field(default=500, ge=1, description="Tokens of a reply that cost nothing and earn nothing.")
    memory: bool = Field(
        default=False, description="Ask for a <memory> in each reply, and show what earlier ones fit what happens."
    )
    memory_embeddings: Literal["wordllama", "hash"] = Field(
        default="wordllama", description="Sentence embeddings that find memories; hash needs no model."
    )
    memory_top_k: int = Field(default=3, ge=1, description="Memories shown at a time, at most.")
    memory_threshold: float = Field(default=0.35, ge=-1, le=1, description="Cosine from which a memory fits.")
    memory_half_life: float = Field(
        default=0.0, ge=0, description="Memories written since, after which one counts half; 0: they do not age."
    )
    memory_file: str = Field(default="", description="Keep memories over episodes, in this file.")
    memory_summary: bool = Field(
        default=False, description="Where a reply has no memory, ask the model for one in a request of its own."
    )

    @model_validator(mode="after")
    def _consistent(self) -> AgentOptions:
        if self.group_by == "episode":
            fields = AgentOptions.model_fields
            changed = [name for name in fields if getattr(self, name) != fields[name].default]
            if changed:
                raise ValueError(f"{', '.join(changed)}: {_TURN_ONLY} (--group-by turn)")
        if self.choose == "best" and not self.score_all:
            raise ValueError("choose best needs score_all: what was not tried has no score (--score-all)")
        if len(self.vrcli_thresholds) != 3 or list(self.vrcli_thresholds) != sorted(self.vrcli_thresholds):
            raise ValueError("vrcli_thresholds are three percentages in ascending order")
        if self.combine == "mean" and self.vrcli_share + self.latro_weight + self.format_weight > 1:
            raise ValueError("the weights of a weighted mean add up to more than 1; lower them, or --combine additive")
        if self.scorer_model and not self.scorer_url:
            raise ValueError("scorer_model needs scorer_url")
        for name, needs in (("vrcli_control", "vrcli"), ("scorer_url", "vrcli")):
            if self.vrcli == "off" and getattr(self, name) != AgentOptions.model_fields[name].default:
                raise ValueError(f"{name} needs {needs} (--vrcli discrete)")
        if not self.memory and (self.memory_file or self.memory_summary):
            raise ValueError("memory_file and memory_summary need memory (--memory)")
        return self

    @property
    def vrcli_share(self) -> float:
        """The weight of VR-CLI, 0 when it is off."""
        return self.vrcli_weight if self.vrcli != "off" else 0.0

    @property
    def memory_options(self) -> MemoryOptions:
        """What the memory store is opened with."""
        return MemoryOptions(
            embeddings=self.memory_embeddings,
            top_k=self.memory_top_k,
            threshold=self.memory_threshold,
            half_life=self.memory_half_life,
            file=Path(self.memory_file).expanduser() if self.memory_file else None,
        )
