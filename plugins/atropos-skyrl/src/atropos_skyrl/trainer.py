"""The trainer `skyrl`: its rows and settings; the rest is what all trainers of other packages do."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk.distributed import PackageTrainer, Running, Shape, prompt_of
from atropos_cli.sdk.runs import Plan
from atropos_cli.sdk.training import TrainPlan

from .config import SkyrlConfig
from .running import SkyrlRunning
from .settings import settings


class SkyrlTrainer(PackageTrainer):
    """SkyRL trains and samples; our engine plays the episodes beside its driver."""

    name: ClassVar[str] = "skyrl"
    methods: ClassVar[Sequence[str]] = ("grpo",)
    how: ClassVar[str] = "uv venv --python 3.12 skyrl && uv pip install --python skyrl/bin/python 'skyrl[fsdp]==0.4.0'"
    inside: ClassVar[Path] = Path(__file__).with_name("inside")
    modules: ClassVar[tuple[str, ...]] = ("atropos_skyrl_generator", "atropos_skyrl_main")
    running: ClassVar[type[Running]] = SkyrlRunning
    takes: ClassVar[Collection[str]] = ("min_p",)
    Config = SkyrlConfig
    config: SkyrlConfig

    def settings(self, plan: TrainPlan, rollouts: Plan, shape: Shape) -> list[str]:
        """Words for SkyRL's command line."""
        return settings(self.config, plan, rollouts, shape)

    def write_more(self, folder: Path) -> None:
        """What the settings of SkyRL have no place for."""
        (folder / "atropos.json").write_text(json.dumps({"env_workers": self.config.env_workers}), encoding="utf-8")

    def row(self, source: str, item: dict[str, Any]) -> dict[str, Any]:
        """As SkyRL's data set wants it; ours is the column `atropos`."""
        return {
            "prompt": prompt_of(item),
            "env_class": "atropos",
            "data_source": source,
            "atropos": json.dumps(item),
        }
