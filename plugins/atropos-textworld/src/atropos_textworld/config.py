"""Options of the environment."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from atropos_cli.sdk import Config, Field
from atropos_textworld.agent.options import AgentOptions
from atropos_textworld.games import registry


class GameOptions(Config):
    """Which games, how they are shown, and how they are run."""

    registry_mode: Literal["random", "generated", "challenge"] = Field(
        default="random",
        description="generated: our own generators; challenge: TextWorld's challenges; random: a mix of both.",
    )
    generation_ratio: float = Field(default=0.7, ge=0, le=1, description="Share of generated games in the mix.")
    difficulty: Literal["easy", "medium", "hard", "expert", "random"] = Field(
        default="random", description="Difficulty of the games; random draws one for each game."
    )
    game_type: str = Field(
        default="", description='Only this kind ("quest-fetch", "tw-simple") or family ("quest") of games.'
    )
    game_seed: int = Field(default=0, description="Another seed gives other games.")
    max_steps: int = Field(
        default=0,
        ge=0,
        description="Turns before a game is cut off; 0: three times the shortest known plan, at least 20.",
    )
    show_commands: bool = Field(default=False, description="List the admissible commands in each observation.")
    pick_from_admissible: bool = Field(
        default=False,
        description="Each reply is one of the admissible commands, which are listed: the model chooses among them and "
        "can write nothing else. Needs a backend that can be held to given replies (openai, local).",
    )
    show_score: bool = Field(default=False, description="Show the score in each observation.")
    show_turns: bool = Field(default=False, description="Show how many turns are left in each observation.")
    processes: int = Field(
        default=0, ge=0, le=64, description="Processes that play games; 0: one per worker or core, at most 16."
    )
    step_timeout: float = Field(
        default=5.0, gt=0, description="Seconds a command may take before its game is given up."
    )
    cache_mb: int = Field(default=2048, ge=64, description="Disk space for compiled games, in MB (0.5 MB a game).")

    @field_validator("game_type")
    @classmethod
    def _known(cls, value: str) -> str:
        registry.matching(value)
        return value


class TextWorldConfig(AgentOptions, GameOptions):
    """All options of the environment: first those of the games, then those of the agent."""

    @model_validator(mode="after")
    def _replies_of_one_kind(self) -> TextWorldConfig:
        if self.pick_from_admissible and self.group_by == "turn":
            raise ValueError(
                "pick_from_admissible needs group_by episode: with turn a reply holds thinking, memory and a "
                "prediction beside its command, for which a reply that is the command alone has no place"
            )
        return self
