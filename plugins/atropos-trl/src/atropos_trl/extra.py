"""The `extra` option: names handed to TRL's own config, checked without importing TRL.

The names are read from the source of the installed packages (its dataclasses' fields), in milliseconds.
"""

from __future__ import annotations

import ast
import difflib
import functools
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from atropos_cli.sdk import ConfigError

OLD_NAMES: dict[str, str] = {
    "max_prompt_length": "TRL cuts no prompts any more: give --max-prompt-tokens",
    "max_seq_length": "it is called max_length now: give --max-length",
    "use_liger_loss": 'it is gone: {"model_init_kwargs": {"use_kernels": true}}',
    "vllm_guided_decoding_regex": "it is called vllm_structured_outputs_regex now",
    "wandb_log_unique_prompts": "it is called log_unique_prompts now",
    "vllm_importance_sampling_cap": "it is called vllm_importance_sampling_clip_max now",
    "use_transformers_paged": "it is called use_transformers_continuous_batching now",
    "warmup_ratio": "it is gone: give --warmup-steps",
    "evaluation_strategy": "give --eval and --eval-every",
    "eval_strategy": "give --eval and --eval-every",
    "eval_steps": "give --eval-every",
    "group_by_length": "it is gone from transformers 5",
    "logging_dir": "it is gone from transformers 5; records are in the run folder",
    "overwrite_output_dir": "give --overwrite",
    "no_cuda": "it is gone: set CUDA_VISIBLE_DEVICES=",
    "rpo_alpha": "it is gone from TRL's DPO; loss_type and loss_weights mix losses",
    "label_pad_token_id": "it is gone from TRL's DPO",
    "reference_free": "it is gone from TRL's DPO",
    "generate_during_eval": "it is gone: give --eval",
}
"""Names of older TRL and transformers, with what to do instead."""

OURS: dict[str, str] = {
    "output_dir": "--output",
    "max_steps": "--steps",
    "num_train_epochs": "--steps",
    "num_generations": "--group-size",
    "generation_batch_size": "--prompts-per-step and --group-size",
    "steps_per_generation": "--prompts-per-step and --per-device-train-batch-size",
    "gradient_accumulation_steps": "--prompts-per-step and --per-device-train-batch-size",
    "save_steps": "--save-every",
    "save_strategy": "--save-every",
    "save_total_limit": "--keep-checkpoints",
    "seed": "--seed",
    "shuffle_dataset": "--seed: --data is shuffled by it",
    "report_to": "--track",
    "run_name": "--run-name",
    "resume_from_checkpoint": "--resume",
    "loss_type": "--algorithm",
    "scale_rewards": "--algorithm",
    "importance_sampling_level": "--algorithm",
    "mask_truncated_completions": "--mask-truncated",
    "bf16": "--precision",
    "fp16": "--precision bf16",
    "use_cpu": "CUDA_VISIBLE_DEVICES=",
    "logging_steps": "every step is recorded",
}
"""Names that follow from options of ours; saying them twice could contradict."""

_OWN_FIELDS = (
    "learning_rate",
    "beta",
    "epsilon",
    "epsilon_high",
    "num_iterations",
    "per_device_train_batch_size",
    "gradient_checkpointing",
    "warmup_steps",
    "lr_scheduler_type",
    "weight_decay",
    "max_grad_norm",
    "max_length",
    "max_completion_length",
    "temperature",
)

_FREE_IN_DPO = frozenset({"loss_type"})


def check_extra(extra: Mapping[str, object], method: str) -> None:
    """Raises ConfigError for a name that TRL has no more, never had, or that is an option of ours."""
    known: frozenset[str] | None = None
    for name in extra:
        if name in OLD_NAMES:
            raise ConfigError(f"extra: TRL knows {name!r} no more", hint=OLD_NAMES[name])
        if name in _OWN_FIELDS:
            raise ConfigError(f"extra: {name!r} is an option of its own", hint=f"--{name.replace('_', '-')}")
        if name in OURS and not (method in ("dpo", "kto") and name in _FREE_IN_DPO):
            raise ConfigError(f"extra: {name!r} follows from other options", hint=f"use {OURS[name]}")
        known = known if known is not None else config_fields(method)
        if known and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise ConfigError(
                f"extra: TRL's {method} config has no {name!r}",
                hint=f"did you mean {close[0]!r}?" if close else "see the fields of TRL's config in its documentation",
            )


@functools.cache
def config_fields(method: str) -> frozenset[str]:
    """Field names of TRL's config for a method, from source; empty where TRL is not installed."""
    names: set[str] = set()
    for package, files in (
        ("trl", ("trainer/base_config.py", f"trainer/{method}_config.py")),
        ("transformers", ("training_args.py",)),
    ):
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec is not None else ():
            for file in files:
                path = Path(root) / file
                if path.is_file():
                    names |= _annotated(path)
    return frozenset(names)


def _annotated(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        item.target.id
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
