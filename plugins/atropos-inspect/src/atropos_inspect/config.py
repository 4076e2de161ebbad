"""The options of the bridge itself; the parameters of the task are added to them."""

from __future__ import annotations

from typing import Any

from atropos_cli.sdk import Config, Field


class BridgeConfig(Config):
    """What all tasks of inspect_ai have here."""

    own_sampling: bool = Field(
        default=True,
        description="Temperature, max_tokens, top_p and stop as the task asks for them; --no-own-sampling: those of "
        "the run.",
    )
    timeout_s: float = Field(
        default=600.0,
        gt=0,
        description="Seconds a rollout may take without asking the model; then the task's process is ended.",
    )
    args: dict[str, Any] = Field(default_factory=dict, description="JSON: further arguments of the task, by name.")
