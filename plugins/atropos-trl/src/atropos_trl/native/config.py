"""The options of the trainer `native`, checked and resolved. Names are TRL's, and the trainer `trl`'s."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from atropos_cli.sdk import Config, ConfigError, Field
from atropos_cli.sdk.training import TrainPlan
from atropos_trl.config import AlgorithmName

from .loss import ALGORITHMS, LossSpec
from .precision import Wanted


class NativeConfig(Config):
    """Options of the trainer `native`."""

    algorithm: AlgorithmName = Field(default="grpo", description="Advantage and loss; see the page on losses.")
    advantages: Literal["auto", "algorithm", "own"] = Field(
        default="auto",
        description="algorithm: made from each group's rewards. own: those that the group carries. "
        "auto: own with --from, where an environment sent some; else algorithm.",
    )
    old_policy: Literal["auto", "behaviour", "current"] = Field(
        default="auto",
        description="What the ratio is taken against: the log-probabilities of sampling (behaviour), or those of the "
        "weights before the step (current). auto: behaviour for stored groups, current for live ones.",
    )
    learning_rate: float | None = Field(default=None, gt=0, description="Default: 1e-6; ten times that with LoRA.")
    beta: float = Field(default=0.0, ge=0, description="Weight of the KL to the reference model.")
    kl_ratio: bool = Field(
        default=True, description="Multiply the KL term by the ratio (use_bias_correction_kl in TRL)."
    )
    epsilon: float | None = Field(default=None, gt=0, description="Lower clip range. Default: 0.2, gspo 3e-4.")
    epsilon_high: float | None = Field(
        default=None, gt=0, description="Upper clip range. Default: epsilon; dapo 0.28, gspo 4e-4, cispo 5.0 (a ratio)."
    )
    num_iterations: int = Field(default=1, ge=1, description="Optimiser steps on each batch of rollouts.")
    mask_truncated: bool = Field(
        default=False, description="True: a cut-off completion has no loss; its reward still counts in its group."
    )
    max_completion_length: int | None = Field(
        default=None, ge=1, description="dr_grpo's constant normaliser. Default: --max-tokens."
    )
    temperature: float | None = Field(
        default=None,
        gt=0,
        description="The temperature that stored groups were sampled with (live: --temperature). "
        "Default: --temperature where given, else 1.0.",
    )
    allow_constant_reward: bool = Field(
        default=False, description="Go on when every completion of the first batch has the same reward."
    )
    micro_batch_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens that a process computes at a time, padding counted. Does not change the gradient. Default: "
        "what fits the GPU (atropos doctor); 8192 on a CPU.",
    )
    gradient_checkpointing: bool | None = Field(
        default=None, description="Less memory, about 30 % slower. Default: on GPUs with less than 30 GiB."
    )
    precision: Wanted = Field(
        default="auto",
        description="What a step is computed in; trained weights stay fp32. auto: bf16 on a GPU that has it, else "
        "fp32. fp16: with loss scaling, for GPUs without bf16 (V100, T4).",
    )
    sharding: Literal["none", "fsdp2"] = Field(
        default="none",
        description="none: each process holds the whole model. fsdp2: weights, gradients and optimiser are spread over "
        "the processes.",
    )
    cpu_offload: bool = Field(
        default=False, description="With --sharding fsdp2: keep what is spread in the CPU's memory; slower."
    )
    max_nonfinite_steps: int = Field(
        default=5, ge=1, description="Stop after this many steps with a loss or gradient that is not a finite number."
    )
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="How the learning rate goes on after the warm-up; linear and cosine need --steps.",
    )
    warmup_steps: int = Field(default=0, ge=0, description="Steps over which the learning rate rises.")
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's weight decay.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this norm.")
    lora_r: int | None = Field(
        default=None, ge=1, description="Train LoRA adapters of this rank; default: all weights."
    )
    lora_alpha: int | None = Field(default=None, ge=1, description="LoRA's scale; default: twice lora_r.")
    lora_dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout in the adapters.")
    lora_target_modules: str = Field(default="all-linear", description="all-linear, or names with commas between.")
    lora_4bit: bool = Field(
        default=False, description="QLoRA: the weights below the adapters are quantised to 4 bits, by bitsandbytes."
    )


SPREAD = frozenset({"sharding", "cpu_offload", "micro_batch_tokens", "gradient_checkpointing"})
"""Options that say where and in which portions a step is computed: its result is the same up to rounding."""


def propose(
    config: NativeConfig, given: Mapping[str, Any], *, live: bool
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Stored groups: the run's sampling settings say how they were sampled, where own options do not."""
    if live:
        return {}, {}
    names = {"temperature": "temperature"}
    if config.algorithm == "dr_grpo":
        names["max_tokens"] = "max_completion_length"
    own = {name: given[setting] for setting, name in names.items() if given.get(setting) is not None}
    return {}, {name: value for name, value in own.items() if getattr(config, name) is None}


def loss_spec(config: NativeConfig, plan: TrainPlan) -> LossSpec:
    """The algorithm's loss with the user's numbers in it. Raises ConfigError when dr_grpo has no length."""
    spec = ALGORITHMS[config.algorithm]
    length = config.max_completion_length or (plan.rollouts.sampling.max_tokens if plan.rollouts else None)
    if length is None and spec.aggregate == "constant":
        raise ConfigError(
            "dr_grpo on stored groups needs the limit they were made with", hint="--max-completion-length N"
        )
    given = {name: value for name in ("epsilon", "epsilon_high") if (value := getattr(config, name)) is not None}
    if "epsilon" in given and spec.kind == "clip":
        given.setdefault("epsilon_high", spec.epsilon_high)
    values = {**spec.__dict__, **given, "beta": config.beta, "kl_ratio": config.kl_ratio, "length": length or 1}
    return LossSpec(**values)


def old_policy(config: NativeConfig, plan: TrainPlan) -> str:
    return config.old_policy if config.old_policy != "auto" else "current" if plan.rollouts else "behaviour"


def rate_factor(config: NativeConfig, steps: int | None, step: int) -> float:
    """What the learning rate is multiplied by for the step that comes after `step` steps."""
    if step < config.warmup_steps:
        return step / config.warmup_steps
    if config.lr_scheduler_type == "constant" or steps is None:
        return 1.0
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return 1 - done if config.lr_scheduler_type == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def save_every(config: NativeConfig, plan: TrainPlan) -> int:
    """Steps between checkpoints; ten of them in a run (each hundred steps of a pass whose end is not known)."""
    wanted = plan.save_every or -(-(plan.steps or 1000) // 10)
    return -(-wanted // config.num_iterations) * config.num_iterations
