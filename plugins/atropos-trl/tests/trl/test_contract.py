"""What the trainer relies on in TRL and transformers, private names too: a release that moves one fails here."""

from __future__ import annotations

import dataclasses
import inspect
from importlib.metadata import version

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_version() -> None:
    major, minor = map(int, version("trl").split(".")[:2])
    assert (major, minor) >= (1, 16)
    assert major < 2


def test_grpo_trainer() -> None:
    from trl import GRPOTrainer

    wanted = {"model", "reward_funcs", "args", "train_dataset", "processing_class", "peft_config", "rollout_func"}
    assert wanted <= set(parameters(GRPOTrainer.__init__))
    assert parameters(GRPOTrainer._generate_and_score_completions) == ["self", "inputs"]
    assert parameters(GRPOTrainer._compute_loss) == ["self", "model", "inputs"]
    names = parameters(GRPOTrainer._get_per_token_logps_and_entropies)
    assert names[:5] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]
    assert "batch_size" in names
    source = inspect.getsource(GRPOTrainer)
    for text in (
        'extra_fields.pop("env_mask", None)',
        'output["tool_mask"] = tool_mask',
        'output["sampling_per_token_logps"] = sampling_per_token_logps',
        'inputs.get("old_per_token_logps")',
        "self._buffered_inputs[self._step % self.args.steps_per_generation]",
        'self._metrics[mode]["completions/clipped_ratio"].append',
        "advantages = torch.nan_to_num(advantages, nan=0.0)",
        'elif self.loss_type == "luspo":',
    ):
        assert text in source, text


@pytest.mark.parametrize("name", ["GRPOConfig", "SFTConfig", "DPOConfig"])
def test_configs(name: str) -> None:
    """Every field that is set by us exists, and the reading of names from source finds them all."""
    import trl
    from atropos_trl.extra import OLD_NAMES, config_fields

    fields = {field.name for field in dataclasses.fields(getattr(trl, name))}
    common = {
        "output_dir",
        "max_steps",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "learning_rate",
        "lr_scheduler_type",
        "warmup_steps",
        "weight_decay",
        "max_grad_norm",
        "gradient_checkpointing",
        "use_cpu",
        "bf16",
        "seed",
        "logging_strategy",
        "logging_steps",
        "logging_nan_inf_filter",
        "save_strategy",
        "report_to",
        "disable_tqdm",
    }
    grpo = {"num_generations", "max_completion_length", "temperature", "beta", "epsilon", "epsilon_high"}
    grpo |= {"num_iterations", "loss_type", "scale_rewards", "importance_sampling_level", "shuffle_dataset"}
    own = {"GRPOConfig": grpo | {"mask_truncated_completions"}, "SFTConfig": {"max_length"}}
    assert common | own.get(name, {"max_length", "beta"}) <= fields
    found = config_fields(name.removesuffix("Config").lower())
    assert fields <= found | {"_n_gpu"}
    gone = set(OLD_NAMES) - {"eval_strategy", "eval_steps", "use_transformers_paged", "vllm_importance_sampling_cap"}
    assert not gone & fields


def test_transformers_trainer() -> None:
    from transformers import Trainer

    assert parameters(Trainer._clip_grad_norm) == ["self", "model"]
    assert parameters(Trainer._save_checkpoint) == ["self", "model", "trial"]
    assert parameters(Trainer._maybe_log_save_evaluate)[:3] == ["self", "tr_loss", "grad_norm"]
    assert parameters(Trainer.log)[:2] == ["self", "logs"]
