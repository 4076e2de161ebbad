"""The options of the trainer `tinker`, checked. Names are TRL's, and those of the trainer `native`."""

from __future__ import annotations

import math
import os
from typing import Literal

from atropos_cli.sdk import Config, ConfigError, Field, JsonDict
from atropos_cli.sdk.training import TrainPlan

KEY_VARIABLE = "TINKER_API_KEY"
URL_VARIABLE = "TINKER_BASE_URL"
ADDRESS = Field(
    default=None,
    description=f"Address of the server; default: {URL_VARIABLE}, else the hosted service.",
)
KEY = Field(default=KEY_VARIABLE, description="Variable with the key of the server; servers of one's own want none.")
SAVES_IN_A_RUN = 10


class TinkerConfig(Config):
    """Options of the trainer `tinker`."""

    base_url: str | None = ADDRESS
    api_key_env: str = KEY
    base_model: str | None = Field(default=None, description="The server's name for the model; default: --model.")
    max_wait: float = Field(default=60.0, ge=0, description="Seconds that the server may be gone in a run.")
    loss: Literal["importance_sampling", "ppo", "cispo"] = Field(
        default="importance_sampling",
        description="The server's loss (grpo). All take the ratio against the log-probabilities of sampling.",
    )
    epsilon: float = Field(default=0.2, gt=0, lt=1, description="Lower clip range of ppo and cispo.")
    epsilon_high: float | None = Field(default=None, gt=0, description="Upper clip range. Default: epsilon.")
    num_iterations: int = Field(default=1, ge=1, description="Optimiser steps on each batch of rollouts.")
    mask_truncated: bool = Field(
        default=False, description="True: a cut-off completion has no loss; its reward still counts in its group."
    )
    allow_constant_reward: bool = Field(
        default=False, description="Continue when every completion of the first batch has the same reward."
    )
    max_length: int | None = Field(default=None, ge=2, description="Leave out longer rows (sft).")
    learning_rate: float = Field(default=1e-4, gt=0, description="Adam's learning rate.")
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="The learning rate after the warm-up; linear and cosine need --steps."
    )
    warmup_steps: int = Field(default=0, ge=0, description="Steps over which the learning rate rises.")
    adam_beta1: float = Field(default=0.9, ge=0, lt=1, description="Adam's decay of the mean gradient.")
    adam_beta2: float = Field(default=0.95, ge=0, lt=1, description="Adam's decay of the squared gradient.")
    adam_epsilon: float = Field(default=1e-8, gt=0, description="Adam's term against division by zero.")
    weight_decay: float = Field(default=0.0, ge=0, description="Adam's decoupled weight decay.")
    max_grad_norm: float = Field(
        default=0.0, ge=0, description="Gradients are scaled down to this norm; 0: never. Some servers ignore it."
    )
    lora_r: int = Field(default=32, ge=1, description="Rank of the LoRA adapters. The server has a limit.")


def check(config: TinkerConfig, plan: TrainPlan) -> JsonDict:
    """Raise ConfigError for what cannot work; return what --dry-run shows. Asks no server."""
    if plan.rewards or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        what = "takes scored groups, not prompts with a reward" if plan.rewards else "is one process here"
        raise ConfigError(f"the trainer tinker {what}", hint="--trainer trl" if plan.rewards else None)
    for name, value in (("--eval-every", plan.eval_every), ("--save-every", plan.save_every)):
        if value is not None and value % config.num_iterations:
            raise ConfigError(
                f"{name} {value} is not a multiple of --num-iterations {config.num_iterations}",
                hint=f"{name} {-(-value // config.num_iterations) * config.num_iterations}",
            )
    if config.lr_scheduler_type != "constant" and plan.steps is None:
        raise ConfigError(f"--lr-scheduler-type {config.lr_scheduler_type} needs --steps", hint="give --steps N")
    if plan.pull is not None and config.num_iterations > 1:
        raise ConfigError("a batch of --from makes one step", hint="leave out --num-iterations")
    live = plan.rollouts
    if live is not None:
        _check_rollouts(plan)
    shown: JsonDict = {"server": config.base_url or os.environ.get(URL_VARIABLE) or "the hosted service"}
    size = f"{plan.prompts_per_step} " + ("rows" if plan.method == "sft" else "groups")
    shown["rows_per_step"] = size + (f" of {live.group_size} rollouts" if live is not None else "")
    return {**shown, "loss": "cross_entropy" if plan.method == "sft" else config.loss, "lora_r": config.lora_r}


def _check_rollouts(plan: TrainPlan) -> None:
    live = plan.rollouts
    assert live is not None
    if live.sampling.temperature != 1.0 and plan.pull is None:
        raise ConfigError(
            f"--temperature {live.sampling.temperature}: the losses of the Tinker API compare with log-probabilities "
            "at temperature 1",
            hint="--temperature 1",
        )
    for name, role in live.roles.items():
        if role.refresh is not None:
            raise ConfigError(
                f"--role.{name}.refresh needs the policy in this process, not on a server",
                hint="--trainer native, or give the role a model",
            )
    if live.advantage == "none" and plan.pull is None:
        raise ConfigError("--advantage none: there would be nothing to learn from", hint="--advantage grpo")
    if live.sampling.max_tokens is None:
        raise ConfigError("no limit of completion tokens is set", hint="--max-tokens 512, or what the task needs")


def loss_config(config: TinkerConfig) -> dict[str, float] | None:
    """The numbers of the server's loss: ratios that it clips at."""
    if config.loss == "importance_sampling":
        return None
    high = config.epsilon if config.epsilon_high is None else config.epsilon_high
    return {"clip_low_threshold": 1 - config.epsilon, "clip_high_threshold": 1 + high}


def rate(config: TinkerConfig, steps: int | None, step: int) -> float:
    """The learning rate for the step that comes after `step` steps."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    if config.lr_scheduler_type == "constant" or steps is None:
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    left = 1 - done if config.lr_scheduler_type == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.learning_rate * left


def save_every(config: TinkerConfig, plan: TrainPlan) -> int:
    """Steps between checkpoints; ten of them in a run (each hundred steps of a pass whose end is not known)."""
    wanted = plan.save_every or -(-(plan.steps or 1000) // SAVES_IN_A_RUN)
    return -(-wanted // config.num_iterations) * config.num_iterations
