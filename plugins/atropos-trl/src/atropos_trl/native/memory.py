"""What a process keeps of a model, part by part: for the estimate of a dry run, and the check of a loaded model."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.training import TrainPlan
from atropos_trl import checks
from atropos_trl.common.machine import human
from atropos_trl.loop import ADAM_BYTES, FLOAT_BYTES

from .config import NativeConfig
from .loss import LossSpec

_FOUR_BITS = 0.55
"""Bytes of a quantised weight, with the constants of its block."""
_HALF_BYTES = 2
_WORKING = 0.1
"""The share of offloaded weights on the device: the layer at work, the next one, and the embeddings."""


@dataclass(frozen=True)
class Kept(checks.Footprint):
    """processes: the weights are spread over so many. base, copy: bytes of a frozen weight, and of a sampled one."""

    processes: int = 1
    offload: bool = False
    base: float = FLOAT_BYTES
    copy: float = 0.0

    def parts(self, parameters: int) -> dict[str, int]:
        """Bytes on the device by part; activations come on top."""
        trained = parameters * (checks.LORA_SHARE if self.lora else 1.0)
        frozen = parameters * self.base if self.lora else 0.0
        share = (_WORKING if self.offload else 1.0) / self.processes
        found = {
            "weights": (frozen + trained * FLOAT_BYTES) * share,
            "gradients": trained * FLOAT_BYTES * share,
            "optimizer": 0.0 if self.offload else trained * ADAM_BYTES * share,
            "reference": parameters * FLOAT_BYTES * share if self.reference else 0.0,
            "sampling_copy": parameters * self.copy,
        }
        return {name: int(size) for name, size in found.items() if size}

    def memory(self, parameters: int) -> int:
        """See Footprint; of one process."""
        return sum(self.parts(parameters).values())

    def on_cpu(self, parameters: int) -> int:
        """See Footprint. Offloading frees nothing here."""
        return replace(self, offload=False).memory(parameters)

    def shown(self, parameters: int) -> JsonDict:
        """For --dry-run."""
        return {"memory_per_process": {name: human(size) for name, size in self.parts(parameters).items()}}


def kept(config: NativeConfig, plan: TrainPlan, spec: LossSpec, number: str) -> Kept:
    """That of a plan. With LoRA, the reference is the model without its adapters. number: the format of activations."""
    lora = config.lora_r is not None
    split = config.sharding != "none"
    small = _HALF_BYTES if number in ("bf16", "fp16") else FLOAT_BYTES
    sources = [plan.rollouts, *(suite.plan for suite in plan.suites)]
    samples = any(source is not None and "base_url" not in source.backend.config for source in sources)
    return Kept(
        lora,
        bool(spec.beta) and not lora,
        processes=int(os.environ.get("WORLD_SIZE", "1")) if split else 1,
        offload=config.cpu_offload,
        base=_FOUR_BITS if config.lora_4bit else small,
        copy=small if split and samples else 0.0,
    )
