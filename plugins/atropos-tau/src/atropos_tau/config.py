"""The options of the environment `tau`."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import model_validator

from atropos_cli.sdk import Config, Field

Strategy: TypeAlias = Literal["llm", "react", "verify", "reflection"]
SOLO = ("mock", "telecom")


class TauConfig(Config):
    domain: Literal["mock", "airline", "retail", "telecom"] = Field(default="mock", description="Domain of tau2.")
    user: Literal["role", "scripted"] = Field(
        default="role", description="Who plays the user: the model of the role user, or a script without a model."
    )
    user_strategy: Strategy = Field(
        default="llm",
        description="How the role user writes: llm as it is, react with a thought first, verify checked by itself up "
        "to 3 times, reflection with a critique and a better message.",
    )
    solo: bool = Field(
        default=False, description="No user: the agent gets a ticket and all tools, and calls done. mock and telecom."
    )
    task_ids: tuple[str, ...] = Field(
        default=(), description="Task of the split to play, by id, repeated; default: all."
    )
    max_turns: int = Field(default=20, ge=1, description="Replies that the agent may give in an episode.")
    max_errors: int = Field(default=10, ge=1, description="Calls of tools that may fail in an episode.")
    user_calls: int = Field(default=10, ge=1, description="Calls of tools that the user may make before a message.")
    tool_timeout: float = Field(default=10.0, gt=0, description="Seconds that a call of a tool may take.")
    tools_in: Literal["template", "prompt"] = Field(
        default="template",
        description="Where the models see their tools: in the server's chat template, or in the system message.",
    )
    nl_assertions: bool = Field(
        default=False,
        description="Have the role judge check assertions in words, also where the reward is not based on them.",
    )

    @model_validator(mode="after")
    def _alone(self) -> TauConfig:
        if self.solo and self.domain not in SOLO:
            raise ValueError(f"domain {self.domain} has no tickets for solo; {' and '.join(SOLO)} do")
        return self
