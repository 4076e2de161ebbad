"""Options that the trainers of other packages share, and sizes that follow from them.

Names are TRL's where it has them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from atropos_cli.domain.plan import Plan
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import ConfigError
from atropos_cli.ports.environment import Config

SAVES_IN_A_RUN = 10
_RESPONSE = 4096
_CLIP: dict[str, tuple[float, float]] = {"gspo": (3e-4, 4e-4), "dapo": (0.2, 0.28)}
_TOKENS_AT_ONCE = 16384


class PackageConfig(Config):
    """Options of a trainer of another package."""

    python: str | None = Field(
        default=None,
        description="Python, or virtual environment, in which the package and its inference engine are installed.",
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
    overrides: tuple[str, ...] = Field(default=(), description="More settings of the package, KEY=VALUE; repeatable.")

    def clip(self) -> tuple[float, float]:
        """The lower and the upper clip range."""
        low, high = _CLIP.get(self.algorithm, (0.2, None))
        low = self.epsilon if self.epsilon is not None else low
        return low, self.epsilon_high if self.epsilon_high is not None else max(low, high or low)

    def response_length(self, rollouts: Plan) -> int:
        """Tokens of an episode behind its first request."""
        return self.max_response_length or max(_RESPONSE, rollouts.sampling.max_tokens or 0)

    def tokens_at_once(self, rollouts: Plan) -> int:
        """Tokens that a GPU computes at once in training: an episode at least."""
        return max(_TOKENS_AT_ONCE, self.max_prompt_length + self.response_length(rollouts))


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a run, and its place. folder: the package's, in the run folder."""

    folder: Path
    steps: int
    nodes: int
    gpus: int


def save_every(plan: TrainPlan, steps: int) -> int:
    """Steps between checkpoints."""
    return plan.save_every or max(1, steps // SAVES_IN_A_RUN)


def own_setting(text: str, ours: Collection[str], example: str, marks: str = "") -> str:
    """A user's KEY=VALUE, as given. ours: keys that the run folder depends on. Raises ConfigError."""
    key, equals, _ = text.partition("=")
    key = key.lstrip(marks)
    if not equals or not key:
        raise ConfigError(f"--overrides {text!r}: not KEY=VALUE", hint=f"--overrides {example}")
    name = key.partition("[")[0]
    if any(f"{one}.".startswith(f"{name}.") or name.startswith(f"{one}.") for one in ours):  # a whole section, a part
        raise ConfigError(f"--overrides {key}: set by atropos", hint="leave it out; atropos train grpo --help")
    return text
