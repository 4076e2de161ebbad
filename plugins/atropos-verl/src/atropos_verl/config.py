"""The options of the trainer `verl`. Names are TRL's where it has them."""

from __future__ import annotations

from typing import Literal

from atropos_cli.sdk import Config, Field


class VerlConfig(Config):
    """Options of the trainer `verl`."""

    python: str | None = Field(
        default=None,
        description="Python, or virtual environment, in which verl and its inference engine are installed.",
    )
    algorithm: Literal["grpo", "dr_grpo", "dapo", "gspo", "rloo"] = Field(
        default="grpo", description="Advantage and loss; dapo without its dynamic sampling."
    )
    engine: Literal["vllm", "sglang"] = Field(default="vllm", description="What samples.")
    learning_rate: float = Field(default=1e-6, gt=0, description="Of AdamW, constant.")
    beta: float = Field(default=0.0, ge=0, description="Weight of the KL to the reference model in the loss.")
    epsilon: float | None = Field(default=None, gt=0, description="Lower clip range. Default: 0.2, gspo 3e-4.")
    epsilon_high: float | None = Field(
        default=None, gt=0, description="Upper clip range. Default: epsilon; dapo 0.28, gspo 4e-4."
    )
    lora_r: int | None = Field(
        default=None, ge=1, description="Train LoRA adapters of this rank; default: all weights."
    )
    lora_alpha: int | None = Field(default=None, ge=1, description="LoRA's scale; default: twice lora_r.")
    gpus: int | None = Field(default=None, ge=1, description="GPUs of each node; default: those of this one.")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs that share one copy of the sampling model.")
    gpu_memory: float = Field(default=0.5, gt=0, le=1, description="Share of a GPU's memory for sampling.")
    offload: bool = Field(default=False, description="Keep weights and optimiser in main memory while they are unused.")
    max_prompt_length: int = Field(default=2048, ge=1, description="Tokens of the first request of an episode.")
    max_response_length: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of an episode behind that, those of the environment too. Default: 4096, or --max-tokens.",
    )
    env_workers: int = Field(
        default=8, ge=1, description="Processes that play episodes, each with --workers requests at once."
    )
    overrides: tuple[str, ...] = Field(
        default=(), description="More settings of verl, KEY=VALUE as Hydra reads them; repeatable."
    )
