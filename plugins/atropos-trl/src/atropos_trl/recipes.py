"""The presets: options and sampling that belong together, each with its source. Imports nothing heavy.

A value of a preset counts where nothing else is given. What a preset cannot set (a data set, a length, a rule of
sampling) is in its `note`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """options: of the trainer. rate: the learning rate when all weights are trained. rows: completions of a step.

    grpo: is it for grpo alone?
    """

    source: str
    note: str = ""
    rate: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    grpo: bool = True


RECIPES: Mapping[str, Recipe] = {
    "arithmetic": Recipe(
        "measured with smollm2 on the environment arithmetic: see the guide",
        rate=5e-6,
        options={"algorithm": "grpo", "beta": 0.1},
        sampling={"temperature": 0.7, "group_size": 16},
        rows=64,
    ),
    "overfit": Recipe(
        "a check of a set-up: one batch of prompts again and again",
        note="the reward must rise; where it does not, reward or set-up is wrong",
        rate=1e-5,
        options={"beta": 0.0},
    ),
    "dr-grpo-paper": Recipe(
        "arXiv 2503.20783",
        note="there, 128 prompts are sampled at a time and learnt from in 8 updates; here every step samples its own",
        rate=1e-6,
        options={"algorithm": "dr_grpo", "beta": 0.0},
        sampling={"temperature": 1.0, "group_size": 8},
        rows=128,
    ),
    "dapo-paper": Recipe(
        "arXiv 2503.14476",
        note="there, 512 prompts are sampled at a time and learnt from in 16 updates; dynamic sampling is --adaptive "
        "of atropos gen, the length penalty a reward",
        rate=1e-6,
        options={"algorithm": "dapo", "epsilon_high": 0.28, "beta": 0.0, "warmup_steps": 20, "mask_truncated": True},
        sampling={"temperature": 1.0, "group_size": 16},
        rows=512,
    ),
    "aggressive": Recipe(
        "fewer rollouts for the same reward, with the risk that training collapses: watch kl and entropy",
        rate=5e-6,
        options={"epsilon_high": 0.28, "num_iterations": 2, "beta": 0.0},
        sampling={"temperature": 1.0, "group_size": 16},
    ),
    "memory-saving": Recipe(
        "adapters instead of all weights, activations computed again, one row at a time",
        options={"lora_r": 16, "gradient_checkpointing": True, "per_device_train_batch_size": 1},
        grpo=False,
    ),
    "max-gpu": Recipe(
        "activations are kept, rows fill the GPU (see atropos doctor), steps are large",
        options={"gradient_checkpointing": False},
        sampling={"group_size": 16},
        rows=512,
        grpo=False,
    ),
}
