"""From our options to the settings of verl, as overrides that Hydra reads."""

from __future__ import annotations

from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.distributed import EVAL_ROWS, TRAIN_ROWS, Shape, check_model, own_setting, save_every
from atropos_cli.sdk.runs import Plan
from atropos_cli.sdk.training import TrainPlan

from .config import VerlConfig

AGENT = "atropos"
LOOP = "agent_loop.yaml"
_OURS = (
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "actor_rollout_ref.rollout.agent.default_agent_loop",
    "actor_rollout_ref.rollout.n",
    "data.shuffle",
    "data.train_batch_size",
    "data.train_files",
    "data.val_files",
    "trainer.default_local_dir",
    "trainer.logger",
    "trainer.nnodes",
    "trainer.resume_mode",
    "trainer.total_training_steps",
    "trainer.use_v1",
    "trainer.v1.trainer_mode",
)
"""What the run folder, the order of the tasks and the records depend on."""
_LOSS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_agg_mode": "seq-mean-token-mean"},
    "dr_grpo": {"loss_agg_mode": "seq-mean-token-sum-norm"},
    "dapo": {"loss_agg_mode": "token-mean"},
    "gspo": {"loss_agg_mode": "seq-mean-token-mean", "policy_loss.loss_mode": "gspo"},
    "rloo": {"loss_agg_mode": "seq-mean-token-mean"},
}


def overrides(config: VerlConfig, plan: TrainPlan, rollouts: Plan, shape: Shape) -> list[str]:
    """All settings, the user's own last. Raises ConfigError for those that are ours."""
    found = {
        **_data(config, plan, rollouts, shape),
        **_algorithm(config),
        **_actor(config, plan, rollouts),
        **_rollout(config, plan, rollouts, shape),
        **_trainer(plan, shape),
    }
    # Hydra would write into the working folder.
    found |= {"hydra.run.dir": str(shape.folder / "hydra"), "hydra.output_subdir": None}
    return [*(f"{key}={hydra(value)}" for key, value in found.items()), *map(_own, config.overrides)]


def hydra(value: Any) -> str:
    """A value in Hydra's grammar: a text is quoted, so that nothing in it is read as more than text."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list):
        return f"[{','.join(map(hydra, value))}]"
    text = str(value)
    if "${" in text:
        raise ConfigError(f"verl would read a variable in {text!r}", hint="use a name without ${")
    if "\\" in text or "\n" in text:
        raise ConfigError(f"verl cannot be given {text!r}", hint="use a name without backslashes")
    return "'" + text.replace("'", "\\'") + "'"


def _own(text: str) -> str:
    return own_setting(text, _OURS, "actor_rollout_ref.actor.grad_clip=0.5", marks="+~")


def _data(config: VerlConfig, plan: TrainPlan, rollouts: Plan, shape: Shape) -> dict[str, Any]:
    values = {
        "train_files": str(shape.folder / TRAIN_ROWS),
        "val_files": str(shape.folder / EVAL_ROWS),
        "train_batch_size": plan.prompts_per_step,
        "max_prompt_length": config.max_prompt_length,
        "max_response_length": config.response_length(rollouts),
        "shuffle": False,
        "filter_overlong_prompts": False,
        "seed": plan.seed,
        "dataloader_num_workers": 1,
    }
    return {f"data.{key}": value for key, value in values.items()}


def _algorithm(config: VerlConfig) -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": "rloo" if config.algorithm == "rloo" else "grpo",
        "algorithm.norm_adv_by_std_in_grpo": config.algorithm != "dr_grpo",
        "algorithm.use_kl_in_reward": False,
    }


def _actor(config: VerlConfig, plan: TrainPlan, rollouts: Plan) -> dict[str, Any]:
    low, high = config.clip()
    actor: dict[str, Any] = {
        "strategy": "fsdp2",
        "optim.lr": config.learning_rate,
        "ppo_mini_batch_size": plan.prompts_per_step,
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": config.tokens_at_once(rollouts),
        "clip_ratio": low,
        "clip_ratio_low": low,
        "clip_ratio_high": high,
        "use_kl_loss": config.beta > 0,
        "kl_loss_coef": config.beta,
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "checkpoint.load_contents": ["model", "optimizer", "extra"],
        "fsdp_config.param_offload": config.offload,
        "fsdp_config.optimizer_offload": config.offload,
        **_LOSS[config.algorithm],
    }
    if config.algorithm == "dr_grpo":
        actor["loss_scale_factor"] = config.response_length(rollouts)
    model: dict[str, Any] = {"path": check_model(plan.model, "verl")}
    if config.lora_r is not None:
        model |= {"lora_rank": config.lora_r, "lora_alpha": config.lora_alpha or 2 * config.lora_r}
    return {
        **{f"actor_rollout_ref.actor.{key}": value for key, value in actor.items()},
        **{f"actor_rollout_ref.model.{key}": value for key, value in model.items()},
    }


def _rollout(config: VerlConfig, plan: TrainPlan, rollouts: Plan, shape: Shape) -> dict[str, Any]:
    sampling = rollouts.sampling
    values: dict[str, Any] = {
        "name": config.engine,
        "n": rollouts.group_size,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "top_k": sampling.top_k or -1,
        "seed": plan.seed,
        "tensor_model_parallel_size": config.tensor_parallel,
        "gpu_memory_utilization": config.gpu_memory,
        "calculate_log_probs": True,
        "agent.default_agent_loop": AGENT,
        "agent.agent_loop_config_path": str(shape.folder / LOOP),
        "agent.num_workers": config.env_workers,
        **({"load_format": "safetensors"} if config.lora_r is not None else {}),
    }
    if plan.suites:
        suite = plan.suites[0].plan
        temperature = suite.sampling.temperature or 0.0
        values |= {
            "val_kwargs.n": suite.group_size,
            "val_kwargs.temperature": temperature,
            "val_kwargs.do_sample": temperature > 0,
        }
    return {f"actor_rollout_ref.rollout.{key}": value for key, value in values.items()}


def _trainer(plan: TrainPlan, shape: Shape) -> dict[str, Any]:
    values = {
        "total_epochs": 1,
        "total_training_steps": shape.steps,
        "project_name": plan.project or "atropos",
        "experiment_name": plan.run_name or "run",
        "logger": ["console", "file"],
        "nnodes": shape.nodes,
        "n_gpus_per_node": shape.gpus,
        "save_freq": save_every(plan, shape.steps),
        "test_freq": (plan.eval_every or shape.steps) if plan.suites else -1,
        "val_before_train": bool(plan.suites),
        "default_local_dir": str(shape.folder / "checkpoints"),
        "max_actor_ckpt_to_keep": plan.keep_checkpoints,
        "resume_mode": "auto",
    }
    return {f"trainer.{key}": value for key, value in values.items()}
