"""The options of the trainer `lerobot`. None means: as LeRobot has it, or as documented."""

from __future__ import annotations

from typing import Literal

from atropos_cli.sdk import Config, Field

PolicyName = Literal["act", "diffusion", "smolvla", "groot"]
Part = Literal["lite", "projector", "diffusion", "llm", "visual"]
DeviceName = Literal["auto", "cuda", "mps", "cpu"]


class LeRobotConfig(Config):
    """Options of the trainer `lerobot`."""

    dataset: str | None = Field(
        default=None, description="LeRobot dataset: its folder, or OWNER/NAME on the hub.", json_schema_extra={}
    )
    policy: PolicyName | None = Field(default=None, description="Kind of policy. Default: act; train groot: groot.")
    tune: tuple[Part, ...] = Field(
        default=(),
        description="groot: the parts that are trained, repeatable; the others are frozen. lite: projector and "
        "diffusion head. Default: lite.",
    )
    embodiment: str = Field(default="new_embodiment", description="groot: tag of the robot's embodiment.")
    batch_size: int | None = Field(
        default=None, ge=1, description="Frames that make one optimiser step. Default: 8; groot: 32."
    )
    learning_rate: float | None = Field(default=None, gt=0, description="Default: the policy's own.")
    num_workers: int = Field(default=4, ge=0, description="Processes that load frames.")
    device: DeviceName = Field(default="auto", description="auto: a GPU where LeRobot's torch sees one, else the CPU.")
    lerobot: str | None = Field(
        default=None,
        description="Which LeRobot: a release that was added (atropos env add lerobot RELEASE), or a Python that has "
        "it. Default: the one of atropos env add lerobot.",
    )
    set: tuple[str, ...] = Field(
        default=(),
        description="An argument of lerobot-train as NAME=VALUE, repeatable, such as policy.chunk_size=50.",
    )
