"""The algorithms in TRL's terms, with their sources, and the presets.

| name | advantage | ratio, clip | aggregation | source |
| --- | --- | --- | --- | --- |
| grpo | (r - mean) / (std + 1e-4), sample std | token, 0.2 | mean in a row, then over rows | arXiv 2402.03300 |
| dr_grpo | r - mean | token, 0.2 | sum / (rows x max_completion_length) | arXiv 2503.20783 |
| dapo | grpo's | token, 0.2 and 0.28 | sum / tokens of the step | arXiv 2503.14476 (no dynamic sampling here) |
| bnpo | grpo's | token, 0.2 | sum / tokens of the micro batch | TRL's name; not arXiv 2506.02864 |
| gspo | grpo's | sequence, 3e-4 and 4e-4 | mean over rows | arXiv 2507.18071 |
| cispo | grpo's | token ratio cut at 5.0, no gradient | dapo's | arXiv 2506.13585 |
| rloo | r - mean of the others, r less beta x k1 | on-policy | sum in a row, mean over rows | arXiv 2402.14740 |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.training import TrainPlan

from .config import AlgorithmName, TrlConfig
from .options import generations, temperature
from .recipes import RECIPES


@dataclass(frozen=True)
class Algorithm:
    """How TRL is told to compute one of them."""

    loss_type: str
    scale_rewards: Literal["group", "none"] = "group"
    level: Literal["token", "sequence"] = "token"
    epsilon: float = 0.2
    epsilon_high: float | None = None
    beta: float = 0.0
    leave_one_out: bool = False


ALGORITHMS: dict[AlgorithmName, Algorithm] = {
    "grpo": Algorithm("grpo"),
    "dr_grpo": Algorithm("dr_grpo", scale_rewards="none"),
    "dapo": Algorithm("dapo", epsilon_high=0.28),
    "bnpo": Algorithm("bnpo"),
    "gspo": Algorithm("grpo", level="sequence", epsilon=3e-4, epsilon_high=4e-4),
    "cispo": Algorithm("cispo", epsilon_high=5.0),
    # On-policy the sequence ratio is 1 and its gradient the sum of the tokens': "luspo" sums within a row.
    "rloo": Algorithm("luspo", scale_rewards="none", leave_one_out=True),
}

_LEARNING_RATES = {"grpo": 1e-6, "sft": 2e-5, "dpo": 1e-6, "kto": 1e-6, "reward": 1e-5}
_LORA_FACTOR = 10.0


@dataclass(frozen=True)
class Resolved:
    """The options after presets: every value decided."""

    algorithm: AlgorithmName
    learning_rate: float
    beta: float
    epsilon: float
    epsilon_high: float | None
    lr_scheduler_type: str
    same_batch: bool
    """Train on the first batch of prompts again and again."""

    @property
    def rule(self) -> Algorithm:
        """How TRL computes it."""
        return ALGORITHMS[self.algorithm]


def resolve(config: TrlConfig, plan: TrainPlan) -> Resolved:
    """Options, else preset, else algorithm, else method. Raises ConfigError for what contradicts itself."""
    recipe, method = RECIPES.get(config.preset), plan.method
    if recipe is not None and recipe.grpo and method != "grpo":
        raise ConfigError(f"--preset {config.preset} is for grpo, not for {method}", hint="leave --preset out")
    ours: Mapping[str, Any] = {} if recipe is None else recipe.options
    algorithm: AlgorithmName = config.algorithm or ours.get("algorithm", "grpo")
    rule = ALGORITHMS[algorithm]
    rate = (recipe.rate if recipe is not None else None) or _LEARNING_RATES[method]
    rate *= _LORA_FACTOR if config.lora_r else 1.0
    beta = 0.1 if method in ("dpo", "kto") else ours.get("beta", rule.beta)
    schedule = "constant_with_warmup" if method == "grpo" else "linear"
    if rule.leave_one_out and config.num_iterations > 1:
        raise ConfigError(
            f"rloo is on-policy here: --num-iterations {config.num_iterations} cannot be",
            hint="--num-iterations 1, or another --algorithm",
        )
    return Resolved(
        algorithm=algorithm,
        learning_rate=config.learning_rate or rate,
        beta=beta if config.beta is None else config.beta,
        epsilon=config.epsilon or rule.epsilon,
        epsilon_high=config.epsilon_high or rule.epsilon_high,
        lr_scheduler_type=config.lr_scheduler_type or schedule,
        same_batch=config.preset == "overfit",
    )


def preset_differences(config: TrlConfig, plan: TrainPlan) -> dict[str, list[float]]:
    """Where the run's sampling differs from its preset: name -> [as it is, as expected]."""
    recipe = RECIPES.get(config.preset)
    if recipe is None or plan.method != "grpo":
        return {}
    size = generations(config, plan)
    found = {"temperature": temperature(config, plan), "group_size": size, "rows": size * plan.prompts_per_step}
    wanted = dict(recipe.sampling) | ({} if recipe.rows is None else {"rows": recipe.rows})
    return {name: [found[name], expected] for name, expected in wanted.items() if found[name] != expected}
