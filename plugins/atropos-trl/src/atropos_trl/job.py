"""What belongs to one training run, handed from step to step of its set-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from atropos_cli.sdk.training import TrainContext, TrainPlan

from .config import TrlConfig
from .loop import Hooks
from .presets import Resolved
from .sizes import Sizes


@dataclass
class Job:
    """plan, options as decided, machine and model of a run."""

    config: TrlConfig
    plan: TrainPlan
    context: TrainContext
    resolved: Resolved
    sizes: Sizes
    hooks: Hooks
    device: Any = None
    precision: Literal["fp32", "bf16"] = "fp32"
    checkpointing: bool = False
    """Compute activations again, where the user did not decide it."""
    tokenizer: Any = None
    model: Any = None
    peft: Any = None
    length: int | None = None
    """The model's context, where it is known."""
    vocabulary: int | None = None
    """Rows of the embedding."""
