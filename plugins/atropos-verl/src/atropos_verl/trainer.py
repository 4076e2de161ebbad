"""The trainer `verl`: its rows and files; the rest is what all trainers of other packages do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk.distributed import PackageTrainer, Running, Shape, prompt_of
from atropos_cli.sdk.runs import Plan
from atropos_cli.sdk.training import TrainPlan

from .config import VerlConfig
from .running import VerlRunning
from .settings import AGENT, LOOP, overrides


class VerlTrainer(PackageTrainer):
    """verl trains and samples; our engine plays the episodes beside its workers."""

    name: ClassVar[str] = "verl"
    methods: ClassVar[Sequence[str]] = ("grpo",)
    how: ClassVar[str] = "uv venv verl && uv pip install --python verl/bin/python 'verl[vllm]==0.9.1'"
    inside: ClassVar[Path] = Path(__file__).with_name("inside")
    modules: ClassVar[tuple[str, ...]] = ("atropos_verl_loop",)
    running: ClassVar[type[Running]] = VerlRunning
    Config = VerlConfig
    config: VerlConfig

    def settings(self, plan: TrainPlan, rollouts: Plan, shape: Shape) -> list[str]:
        """Overrides that Hydra reads."""
        return overrides(self.config, plan, rollouts, shape)

    def write_more(self, folder: Path) -> None:
        """The file that names our agent loop."""
        loop = [{"name": AGENT, "_target_": "atropos_verl_loop.AtroposAgentLoop", "folder": str(folder)}]
        (folder / LOOP).write_text(json.dumps(loop), encoding="utf-8")  # JSON is YAML

    def row(self, source: str, item: dict[str, Any]) -> dict[str, Any]:
        """As verl's data set wants it; ours is the column `atropos`."""
        return {
            "prompt": prompt_of(item),
            "data_source": source,
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": item["place"]},
            "atropos": json.dumps(item),
        }
