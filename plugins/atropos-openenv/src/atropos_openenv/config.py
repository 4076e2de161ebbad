"""The options of an OpenEnv environment."""

from __future__ import annotations

from typing import Any, Literal

from atropos_cli.sdk import Config, Field


class OpenEnvConfig(Config):
    """How a server is asked, and what the model sees of it."""

    actions: Literal["auto", "tools", "json", "text"] = Field(
        default="auto",
        description="How the model acts: by tools, one JSON object, or a reply that is the action's only text. auto: "
        "tools where the server has some, text where the action is one text, else JSON.",
    )
    show: str | None = Field(
        default=None, description="Field of an observation that the model sees; by default all that are set."
    )
    instructions: str | None = Field(default=None, description="Text before the first observation, in its message.")
    reset: dict[str, Any] = Field(default_factory=dict, description="JSON: arguments of every reset, beside the seed.")
    data_seed: int = Field(default=0, ge=0, description="Seed of the first task's reset; task i has this one plus i.")
    max_steps: int = Field(default=20, ge=1, description="Steps after which an episode is cut off.")
    timeout_s: float = Field(default=60.0, gt=0, description="Seconds that a step or a reset may take.")
    capacity_s: float = Field(
        default=600.0, gt=0, description="Seconds to wait for a session while the server has no more of them."
    )
    restart_s: float = Field(
        default=60.0,
        ge=0,
        description="Seconds to wait for a server that cannot be reached, such as while it restarts.",
    )
