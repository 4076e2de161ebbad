"""[launch]: what `atropos launch-sglang` and `atropos launch-vllm` can be told, whichever engine it is for."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from atropos_cli.config.sources import Bucket
from atropos_cli.domain.base import Frozen

LAUNCH = "launch"


class LaunchSettings(Frozen):
    """Everything left out is chosen from the machine, the GPUs and the model."""

    tp: int | None = Field(
        default=None, ge=1, description="GPUs that share one copy of the model; default: from model and GPUs."
    )
    dp: int | None = Field(
        default=None, ge=1, description="Independent servers, each with its own port; default: as many as fit."
    )
    gpus: int | None = Field(default=None, ge=0, description="GPUs to use; default: all that are visible.")
    host: Literal["127.0.0.1", "0.0.0.0"] = Field(  # noqa: S104
        default="127.0.0.1", description="Address to listen on; 0.0.0.0 lets other hosts in."
    )
    port: int | None = Field(
        default=None, ge=1, le=65535, description="Port of the first server, the others follow; default: a free one."
    )
    dtype: str | None = Field(default=None, description="Type of weights and activations; default: by the GPU.")
    context: int | None = Field(
        default=None, ge=16, description="Longest prompt plus reply in tokens; default: the model's."
    )
    max_requests: int | None = Field(
        default=None, ge=1, description="Sequences a server works on at once; default: by the GPU."
    )
    memory_fraction: float | None = Field(
        default=None, gt=0, le=1, description="Share of GPU memory for weights and cache; default: by GPU and engine."
    )
    attention_backend: str | None = Field(
        default=None, description="The engine's attention kernels; default: the engine's choice, but on old GPUs."
    )
    eager: bool | None = Field(
        default=None, description="No compilation, no CUDA graphs: starts sooner, runs slower; default: on CPUs only."
    )
    seed: int = Field(default=0, ge=0, description="Seed of the server.")
    served_name: str | None = Field(default=None, description="Name that requests use; default: MODEL as given.")
    tool_parser: str = Field(
        default="auto", description="The engine's parser of tool calls; auto: by the model's family; none: no parser."
    )
    reasoning_parser: str = Field(
        default="none", description="Splits thinking from the reply in the server; auto: by the model's family."
    )
    engine_python: str | None = Field(
        default=None, description="Python interpreter that has the engine; default: the command on PATH, else this one."
    )
    start_timeout: float = Field(default=1800.0, gt=0, description="Seconds until all servers must be ready.")


def launch_bucket() -> Bucket:
    """Section [launch], variables ATROPOS_LAUNCH__NAME."""
    return Bucket(name=LAUNCH, label="atropos launch", model=LaunchSettings, section="launch", prefix="LAUNCH__")
