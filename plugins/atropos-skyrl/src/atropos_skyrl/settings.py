"""From our options to the settings of SkyRL, as its command line reads them."""

from __future__ import annotations

import json
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.distributed import EVAL_ROWS, TRAIN_ROWS, Shape, check_model, own_setting, save_every
from atropos_cli.sdk.runs import Plan
from atropos_cli.sdk.training import TrainPlan

from .config import SkyrlConfig

CHECKPOINTS, EXPORTS = "checkpoints", "exports"
_OURS = (
    "data.train_data",
    "data.val_data",
    "environment.env_class",
    "generator.batched",
    "generator.n_samples_per_prompt",
    "generator.step_wise_trajectories",
    "generator.vision_language_generator",
    "trainer.algorithm.dynamic_sampling.type",
    "trainer.ckpt_interval",
    "trainer.ckpt_path",
    "trainer.epochs",
    "trainer.export_path",
    "trainer.fully_async.enabled",
    "trainer.hf_save_interval",
    "trainer.logger",
    "trainer.max_training_steps",
    "trainer.override_entrypoint",
    "trainer.placement.policy_num_nodes",
    "trainer.resume_mode",
    "trainer.resume_path",
    "trainer.strategy",
    "trainer.train_batch_size",
)
"""What the run folder, the order of the tasks and the records depend on."""
_ALGORITHM: dict[str, dict[str, Any]] = {
    "grpo": {"loss_reduction": "sequence_mean"},
    "dr_grpo": {"loss_reduction": "seq_mean_token_sum_norm"},
    "dapo": {"loss_reduction": "token_mean"},
    "gspo": {"loss_reduction": "sequence_mean", "policy_loss_type": "gspo"},
    "rloo": {"loss_reduction": "sequence_mean", "advantage_estimator": "rloo"},
}


def settings(config: SkyrlConfig, plan: TrainPlan, rollouts: Plan, shape: Shape) -> list[str]:
    """All settings, the user's own last. Raises ConfigError for those that are ours, and for sizes that do not fit."""
    if config.engine != "vllm":
        raise ConfigError(
            f"--engine {config.engine}: SkyRL samples with vLLM alone", hint="leave it out; --trainer verl has sglang"
        )
    found = {
        **_data(shape),
        **_algorithm(config, rollouts),
        **_policy(config, plan),
        **_placement(config, rollouts, shape),
        **_generator(config, plan, rollouts),
        **_trainer(config, plan, rollouts, shape),
    }
    return [*(f"{key}={written(value)}" for key, value in found.items()), *map(_own, config.overrides)]


def written(value: Any) -> str:
    """A value as OmegaConf reads it: JSON, which is YAML, so that nothing in a text is read as more than text."""
    text = json.dumps(value, ensure_ascii=False)
    if "${" in text:
        raise ConfigError(f"SkyRL would read a variable in {value!r}", hint="use a name without ${")
    return text


def _own(text: str) -> str:
    return own_setting(text, _OURS, "trainer.policy.optimizer_config.max_grad_norm=0.5", marks="+")


def _data(shape: Shape) -> dict[str, Any]:
    return {
        "data.train_data": [str(shape.folder / TRAIN_ROWS)],
        "data.val_data": [str(shape.folder / EVAL_ROWS)],
        "environment.env_class": "atropos",
    }


def _algorithm(config: SkyrlConfig, rollouts: Plan) -> dict[str, Any]:
    low, high = config.clip()
    values = {
        "advantage_estimator": "grpo",
        "grpo_norm_by_std": config.algorithm != "dr_grpo",
        "eps_clip_low": low,
        "eps_clip_high": high,
        "use_kl_loss": config.beta > 0,
        "kl_loss_coef": config.beta,
        "use_kl_in_reward": False,
        **_ALGORITHM[config.algorithm],
    }
    if config.algorithm == "dr_grpo":
        values["max_seq_len"] = config.response_length(rollouts)
    return {f"trainer.algorithm.{key}": value for key, value in values.items()}


def _policy(config: SkyrlConfig, plan: TrainPlan) -> dict[str, Any]:
    values: dict[str, Any] = {
        "policy.model.path": check_model(plan.model, "skyrl"),
        "policy.optimizer_config.lr": config.learning_rate,
        "strategy": config.strategy,
    }
    if config.lora_r is not None:
        values |= {
            "policy.model.lora.rank": config.lora_r,
            "policy.model.lora.alpha": config.lora_alpha or 2 * config.lora_r,
        }
    if config.offload and config.strategy == "megatron":
        kwargs = "policy.megatron_config.optimizer_config_kwargs"
        values |= {f"{kwargs}.optimizer_cpu_offload": True, f"{kwargs}.optimizer_offload_fraction": 1.0}
    elif config.offload:
        values |= {"policy.fsdp_config.cpu_offload": True, "ref.fsdp_config.cpu_offload": True}
    return {f"trainer.{key}": value for key, value in values.items()}


def _placement(config: SkyrlConfig, rollouts: Plan, shape: Shape) -> dict[str, Any]:
    gpus = shape.nodes * shape.gpus
    if gpus % config.tensor_parallel:
        raise ConfigError(
            f"--tensor-parallel {config.tensor_parallel} does not divide {gpus} GPUs",
            hint="all GPUs sample, in groups of that size",
        )
    values: dict[str, Any] = {"trainer.placement.colocate_all": True}
    for role in ("policy", "ref"):
        values[f"trainer.placement.{role}_num_nodes"] = shape.nodes
        values[f"trainer.placement.{role}_num_gpus_per_node"] = shape.gpus
    engines = {
        "num_engines": gpus // config.tensor_parallel,
        "tensor_parallel_size": config.tensor_parallel,
        "gpu_memory_utilization": config.gpu_memory,
        "engine_init_kwargs.max_model_len": config.max_prompt_length + config.response_length(rollouts),
    }
    return values | {f"generator.inference_engine.{key}": value for key, value in engines.items()}


def _generator(config: SkyrlConfig, plan: TrainPlan, rollouts: Plan) -> dict[str, Any]:
    """An episode may have several sequences of training: SkyRL calls them the steps of a trajectory."""
    length = config.response_length(rollouts)
    values: dict[str, Any] = {"n_samples_per_prompt": rollouts.group_size, "step_wise_trajectories": True}
    sampling: dict[str, Any] = {"max_generate_length": length, "logprobs": 1}
    for name, neutral in (("temperature", 1.0), ("top_p", 1.0), ("top_k", -1), ("min_p", 0.0)):
        given = getattr(rollouts.sampling, name)
        sampling[name] = neutral if given is None or (name == "top_k" and not given) else given
    if not sampling["temperature"]:
        raise ConfigError("--temperature 0: all rollouts of a group would be the same", hint="--temperature 1")
    values |= {f"sampling_params.{key}": value for key, value in sampling.items()}
    if plan.suites:
        suite = plan.suites[0].plan
        values |= {
            "eval_n_samples_per_prompt": suite.group_size,
            "eval_sampling_params.max_generate_length": length,
            "eval_sampling_params.temperature": suite.sampling.temperature or 0.0,
        }
    return {f"generator.{key}": value for key, value in values.items()}


def _trainer(config: SkyrlConfig, plan: TrainPlan, rollouts: Plan, shape: Shape) -> dict[str, Any]:
    every = save_every(plan, shape.steps)
    values = {
        "epochs": 1,
        "train_batch_size": plan.prompts_per_step,
        "policy_mini_batch_size": plan.prompts_per_step,
        "max_prompt_length": config.max_prompt_length,
        "max_tokens_per_microbatch": config.tokens_at_once(rollouts),
        "seed": plan.seed,
        "project_name": plan.project or "atropos",
        "run_name": plan.run_name or "run",
        "logger": "console",
        "log_path": str(shape.folder / "logs"),
        "ckpt_path": str(shape.folder / CHECKPOINTS),
        "export_path": str(shape.folder / EXPORTS),
        "ckpt_interval": every,
        "hf_save_interval": every,
        "max_ckpts_to_keep": plan.keep_checkpoints,
        "resume_mode": "latest",
        "eval_interval": (plan.eval_every or shape.steps) if plan.suites else -1,
        "eval_before_train": bool(plan.suites),
        "dump_eval_results": False,
    }
    if config.lora_r is not None:
        values["policy.model.lora.lora_sync_path"] = str(shape.folder / "lora")
    return {f"trainer.{key}": value for key, value in values.items()}
