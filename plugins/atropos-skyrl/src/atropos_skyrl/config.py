"""The options of the trainer `skyrl`."""

from __future__ import annotations

from typing import Literal

from atropos_cli.sdk import Field
from atropos_cli.sdk.distributed import PackageConfig


class SkyrlConfig(PackageConfig):
    """Options of the trainer `skyrl`."""

    python: str | None = Field(
        default=None,
        description="Python, or virtual environment, in which SkyRL and its inference engine are installed.",
    )
    strategy: Literal["fsdp", "megatron"] = Field(default="fsdp", description="How the weights are trained in pieces.")
    engine: Literal["vllm", "sglang"] = Field(default="vllm", description="What samples: SkyRL has vllm alone.")
    overrides: tuple[str, ...] = Field(
        default=(), description="More settings of SkyRL, KEY=VALUE as its command line reads them; repeatable."
    )
