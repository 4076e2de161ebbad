"""The options of the bridge itself; those of the environment are added to them."""

from __future__ import annotations

from typing import Any

from atropos_cli.sdk import Config, Field


class BridgeConfig(Config):
    """What all environments of verifiers have here."""

    args: dict[str, Any] = Field(
        default_factory=dict,
        description="JSON: more arguments of load_environment(), or, from verifiers 0.4, fields of the EnvConfig.",
    )
    harness: str | None = Field(
        default=None,
        description="From verifiers 0.4: the harness of all agents, such as null or bash; without it, chat with the "
        "tools of the taskset, in the environment's process.",
    )
    own_sampling: bool = Field(
        default=True,
        description="Temperature, max_tokens, top_p and stop as the environment asks for them; "
        "--no-own-sampling: those of the run.",
    )
    timeout_s: float = Field(
        default=600.0,
        gt=0,
        description="Seconds a rollout may take without asking the model; then its process is ended.",
    )
