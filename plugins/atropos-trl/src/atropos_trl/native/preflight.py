"""What the trainer `native` refuses before a model is loaded, and what a dry run shows."""

from __future__ import annotations

import os
from importlib.util import find_spec

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.training import TrainPlan
from atropos_trl import checks
from atropos_trl.common import machine, models

from .config import NativeConfig, loss_spec, old_policy
from .memory import kept


def check(config: NativeConfig, plan: TrainPlan) -> JsonDict:
    """See Trainer.check."""
    if plan.rewards:
        raise ConfigError("the trainer native takes scored groups, not prompts with a reward", hint="--trainer trl")
    _check_placement(config)
    checks.check_pulled(plan, config.num_iterations)
    for name, value in (("--eval-every", plan.eval_every), ("--save-every", plan.save_every)):
        if value is not None and value % config.num_iterations:
            raise ConfigError(
                f"{name} {value} is no multiple of --num-iterations {config.num_iterations}",
                hint=f"{name} {-(-value // config.num_iterations) * config.num_iterations}",
            )
    if config.lr_scheduler_type != "constant" and plan.steps is None:
        raise ConfigError(f"--lr-scheduler-type {config.lr_scheduler_type} needs --steps", hint="give --steps N")
    spec, live = loss_spec(config, plan), plan.rollouts
    if live is not None and not live.sampling.temperature:
        raise ConfigError("greedy rollouts of a task are all the same", hint="--temperature 1")
    if live is not None and config.temperature is not None:
        raise ConfigError(
            "--trainer.temperature means nothing to grpo --env", hint=f"--temperature {config.temperature:g}"
        )
    rows = f"{plan.prompts_per_step} groups" + ("" if live is None else f" of {live.group_size} rollouts")
    shown: JsonDict = {"rows_per_step": rows, "loss": dict(vars(spec)), "old_policy": old_policy(config, plan)}
    profile = machine.here()
    shown |= {"micro_batch_tokens": config.micro_batch_tokens or profile.tokens}
    shown |= {"processes": int(os.environ.get("WORLD_SIZE", "1")), "sharding": config.sharding}
    shown |= machine.shown(profile, config.precision, config.gradient_checkpointing)
    known = models.facts(plan.model)
    if live is not None:
        checks.check_context(plan, known.context, live.sampling.max_tokens or 0, None)
        checks.check_batch_memory(plan.prompts_per_step * live.group_size, live.sampling.max_tokens or 0)
    if known.parameters is not None:
        number = config.precision if config.precision != "auto" else profile.precision
        what = kept(config, plan, spec, number)
        shown |= checks.check_memory(known.parameters, what) | what.shown(known.parameters)
    return shown


def _check_placement(config: NativeConfig) -> None:
    """Do the options that say where weights are agree? Raises ConfigError."""
    split = config.sharding != "none"
    if config.cpu_offload and not split:
        raise ConfigError("--cpu-offload needs weights that are spread", hint="--sharding fsdp2, or leave it out")
    if split and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        raise ConfigError(f"--sharding {config.sharding} needs several processes", hint="--processes N")
    if not config.lora_4bit:
        return
    if config.lora_r is None:
        raise ConfigError("--lora-4bit quantises the weights below LoRA adapters", hint="add --lora-r 16")
    if split:
        raise ConfigError(
            "--lora-4bit: quantised weights cannot be spread", hint="leave out --sharding: 4 bits take little memory"
        )
    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            "--lora-4bit needs the package bitsandbytes", hint="pip install 'atropos-trl[qlora]', or leave it out"
        )
