"""The options of the trainer `trl`. Names are TRL's; None means: by preset, then by algorithm, then as documented.

Every option is a flag of `atropos train`, a key in a file and a variable ATROPOS_TRAINER__*.
"""

from __future__ import annotations

from typing import Literal

from atropos_cli.sdk import Config, Field

AlgorithmName = Literal["grpo", "dr_grpo", "dapo", "bnpo", "gspo", "cispo", "rloo"]
PresetName = Literal[
    "none", "arithmetic", "overfit", "dr-grpo-paper", "dapo-paper", "aggressive", "memory-saving", "max-gpu"
]


class TrlConfig(Config):
    """Options of the trainer `trl`."""

    algorithm: AlgorithmName | None = Field(
        default=None,
        description="grpo: advantage and loss; see `presets` in the guide for sources. Default: grpo.",
    )
    preset: PresetName = Field(
        default="none",
        description="Options and sampling that belong together, each where nothing else is given; the guide on GRPO "
        "lists them with their sources. overfit: one batch again and again, to see that a set-up learns at all.",
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="Default: 1e-6 for grpo, 2e-5 for sft, 1e-6 for dpo; ten times that with LoRA."
    )
    beta: float | None = Field(
        default=None, ge=0, description="Weight of the KL to the reference model. Default: 0 (grpo), 0.1 (dpo)."
    )
    epsilon: float | None = Field(default=None, gt=0, description="Lower clip range. Default: 0.2, gspo 3e-4.")
    epsilon_high: float | None = Field(
        default=None, gt=0, description="Upper clip range. Default: epsilon; dapo 0.28, gspo 4e-4, cispo 5.0."
    )
    num_iterations: int = Field(default=1, ge=1, description="Optimiser steps on each batch of rollouts.")
    mask_truncated: bool = Field(
        default=False,
        description="True: a cut-off completion has no loss; its reward still counts in its group's mean and std. "
        "False: it is trained on like any other.",
    )
    behaviour_logprobs: bool = Field(
        default=False,
        description="Take the log-probabilities of sampling as the old policy (for a server whose numbers differ from "
        "the trainer's); they must be tempered ones.",
    )
    allow_constant_reward: bool = Field(
        default=False, description="Go on when every completion of the first batch has the same reward."
    )
    lora_r: int | None = Field(
        default=None, ge=1, description="Train LoRA adapters of this rank; default: all weights."
    )
    lora_alpha: int | None = Field(default=None, ge=1, description="LoRA's scale; default: twice lora_r.")
    lora_dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout in the adapters.")
    lora_target_modules: str = Field(
        default="all-linear", description="all-linear, or names of modules with commas between."
    )
    per_device_train_batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Rows computed at a time; default: the most that divide a step, up to what fits the GPU "
        "(atropos doctor; 32 on a CPU).",
    )
    gradient_checkpointing: bool | None = Field(
        default=None,
        description="Compute activations again in the backward pass: less memory, about 30 % slower. Default: on "
        "GPUs with less than 30 GiB.",
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="auto: bf16 mixed precision on a GPU that has it, else fp32. Weights stay fp32."
    )
    warmup_steps: int = Field(default=0, ge=0, description="Steps over which the learning rate rises.")
    lr_scheduler_type: Literal["constant", "linear", "cosine", "constant_with_warmup"] | None = Field(
        default=None, description="Default: constant_with_warmup for grpo, linear for sft and dpo."
    )
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW's weight decay.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Gradients are scaled down to this norm.")
    max_length: int | None = Field(
        default=None,
        ge=2,
        description="sft, dpo, kto: rows with more tokens are left out, and counted. Default: the context.",
    )
    max_prompt_tokens: int | None = Field(
        default=None, ge=1, description="Longer prompts are left out, and counted; with max_tokens within the context."
    )
    max_completion_length: int | None = Field(
        default=None,
        ge=1,
        description="dr_grpo's constant normaliser, and the limit of completions for --data. Default: --max-tokens; "
        "256 for --data where that is not given.",
    )
    num_generations: int | None = Field(
        default=None, ge=1, description="Completions per prompt for --data. Default: --group-size where given, else 8."
    )
    temperature: float | None = Field(
        default=None,
        ge=0,
        description="Sampling temperature for --data. Default: --temperature where given, else 1.0.",
    )
    max_nonfinite_steps: int = Field(
        default=5, ge=1, description="Stop after this many steps with a loss or gradient that is not a finite number."
    )
    extra: dict[str, object] = Field(
        default_factory=dict, description='JSON handed to TRL\'s config as it is, e.g. {"top_entropy_quantile": 0.2}.'
    )
