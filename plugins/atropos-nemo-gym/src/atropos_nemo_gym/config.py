"""The options of an environment behind a resource server."""

from __future__ import annotations

from pathlib import Path

from atropos_cli.sdk import Config, Field


class NemoGymConfig(Config):
    """Where the tasks are, and how long an episode and a request may be."""

    data: Path | None = Field(
        default=None, description="JSONL file of the server's tasks, such as its data/example.jsonl. Required."
    )
    max_turns: int = Field(default=20, ge=1, description="Replies that the model may give in an episode.")
    timeout_s: float = Field(default=120.0, gt=0, description="Seconds that a request to the server may take.")
    tool_output: int = Field(default=20000, ge=1, description="Most characters of a tool's result.")
