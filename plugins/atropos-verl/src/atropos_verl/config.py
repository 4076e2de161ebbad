"""The options of the trainer `verl`."""

from __future__ import annotations

from atropos_cli.sdk import Field
from atropos_cli.sdk.distributed import PackageConfig


class VerlConfig(PackageConfig):
    """Options of the trainer `verl`."""

    python: str | None = Field(
        default=None,
        description="Python, or virtual environment, in which verl and its inference engine are installed.",
    )
    overrides: tuple[str, ...] = Field(
        default=(), description="More settings of verl, KEY=VALUE as Hydra reads them; repeatable."
    )
