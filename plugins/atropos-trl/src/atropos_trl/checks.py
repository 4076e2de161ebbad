"""What can be refused before a model is loaded (contradictions, sizes, memory, disk), or once its tokenizer is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, JsonDict, TrainContext, TrainPlan

from .common import models
from .common.machine import free_disk, free_memory, human
from .config import TrlConfig
from .extra import check_extra
from .loop import ADAM_BYTES, FLOAT_BYTES, STATE_BYTES
from .presets import Resolved, preset_differences
from .sizes import Sizes

DATA_COMPLETION = 256
_LORA_SHARE = 0.05
_GPU = Path("/proc/driver/nvidia")


def check_all(config: TrlConfig, plan: TrainPlan, resolved: Resolved, sizes: Sizes) -> JsonDict:
    """Everything that needs no model. Raises ConfigError; returns what --dry-run shows."""
    check_extra(config.extra, plan.method)
    facts = models.facts(plan.model)
    shown: JsonDict = {**sizes.describe(), "learning_rate": resolved.learning_rate, "beta": resolved.beta}
    if plan.method == "grpo":
        shown |= {
            "algorithm": resolved.algorithm,
            "epsilon": resolved.epsilon,
            "epsilon_high": resolved.epsilon_high,
            "max_completion_length": completion_limit(config, plan),
            "temperature": temperature(config, plan),
            "mask_truncated": config.mask_truncated,
        }
        _check_rollouts(config, plan)
        _check_context(config, plan, facts.context)
        different = preset_differences(config, plan)
        if different:
            shown["differs_from_preset"] = different
    elif config.max_length is not None and facts.context is not None and config.max_length > facts.context:
        raise ConfigError(
            f"--max-length {config.max_length} is more than the model's context of {facts.context} tokens",
            hint=f"--max-length {facts.context}",
        )
    if facts.parameters is not None:
        estimate = memory_estimate(facts.parameters, config, plan, resolved)
        shown |= {"parameters": facts.parameters, "memory_estimate": human(estimate)}
        free = free_memory()
        if free is not None and not _GPU.exists() and estimate > free:
            raise ConfigError(_memory_text(estimate, free, facts.parameters), hint=_memory_hint(config))
    return shown


def completion_limit(config: TrlConfig, plan: TrainPlan) -> int:
    """Tokens a completion may have; dr_grpo's constant."""
    if config.max_completion_length is not None:
        return config.max_completion_length
    if plan.rollouts is None:
        return DATA_COMPLETION
    return plan.rollouts.sampling.max_tokens or DATA_COMPLETION


def temperature(config: TrlConfig, plan: TrainPlan) -> float:
    """The temperature completions are sampled at."""
    if plan.rollouts is None:
        return config.temperature
    value = plan.rollouts.sampling.temperature
    return 1.0 if value is None else value


def _check_rollouts(config: TrlConfig, plan: TrainPlan) -> None:
    if temperature(config, plan) == 0:
        raise ConfigError(
            "--temperature 0: all completions of a prompt would be the same, and every advantage 0",
            hint="--temperature 1.0",
        )
    rollouts = plan.rollouts
    if rollouts is None:
        return
    if rollouts.sampling.max_tokens is None and config.max_completion_length is None:
        raise ConfigError("no limit of completion tokens is set", hint="--max-tokens 512, or what the task needs")
    wanted = rollouts.backend.config.get("logprobs")
    if config.behaviour_logprobs and rollouts.sampling.temperature not in (None, 1.0) and wanted != "tempered":
        raise ConfigError(
            f"--behaviour-logprobs at temperature {rollouts.sampling.temperature}: the backend's log-probabilities are "
            "not tempered, as the trainer's are",
            hint="--backend.logprobs tempered (local), a server started for processed logprobs, or --temperature 1",
        )


def _check_context(config: TrlConfig, plan: TrainPlan, context: int | None) -> None:
    own = plan.rollouts.backend.config.get("context") if plan.rollouts is not None else None
    if isinstance(own, int):
        context = min(own, context) if context is not None else own
    if context is None:
        return
    completion = plan.rollouts.sampling.max_tokens if plan.rollouts is not None else completion_limit(config, plan)
    completion, prompt = completion or 0, config.max_prompt_tokens or 1
    if prompt + completion > context:
        asked = f"prompts of up to {prompt} tokens and " if config.max_prompt_tokens is not None else ""
        raise ConfigError(
            f"{asked}completions of up to {completion} tokens ({prompt + completion} together) do not fit the model's "
            f"context of {context}",
            hint=f"--max-tokens {max(1, context - prompt)}"
            + (f", or --max-prompt-tokens {context - completion}" if completion < context else ""),
        )


def memory_estimate(parameters: int, config: TrlConfig, plan: TrainPlan, resolved: Resolved) -> int:
    """Bytes of weights, gradients, Adam's moments and a reference model; activations come on top."""
    weights = parameters * FLOAT_BYTES
    if config.lora_r is not None:
        return int(weights * (1 + _LORA_SHARE * (1 + ADAM_BYTES / FLOAT_BYTES)))
    reference = weights if resolved.beta and plan.method in ("grpo", "dpo") else 0
    return 2 * weights + parameters * ADAM_BYTES + reference


def checkpoint_estimate(parameters: int, config: TrlConfig) -> int:
    """Bytes of one checkpoint."""
    trained = parameters * (_LORA_SHARE if config.lora_r is not None else 1.0)
    return int(trained * (FLOAT_BYTES + ADAM_BYTES)) + STATE_BYTES


def check_disk(folder: Path, parameters: int, config: TrlConfig) -> None:
    """Is there room for two checkpoints (the old one stays until the new one is whole) and the final weights?"""
    needed = 2 * checkpoint_estimate(parameters, config) + parameters * FLOAT_BYTES
    free = free_disk(folder)
    if free < needed:
        raise ConfigError(
            f"{folder}: {human(free)} are free; two checkpoints and the final weights take {human(needed)}",
            hint="make room, choose another --output, or train LoRA adapters: --lora-r 16",
        )


def check_gpu_memory(model: Any, device: Any, config: TrlConfig, plan: TrainPlan, resolved: Resolved) -> None:
    """The estimate against the GPU's free memory, once torch is there."""
    if device.type != "cuda":
        return
    parameters = sum(p.numel() for p in model.parameters())
    estimate, free = memory_estimate(parameters, config, plan, resolved), free_memory(device)
    if free is not None and estimate > free:
        raise ConfigError(_memory_text(estimate, free, parameters), hint=_memory_hint(config))


def check_tokenizer(tokenizer: Any, model_name: str, context: TrainContext) -> None:
    """End token, padding and chat template. Raises ConfigError, or warns of what makes a model never stop."""
    if tokenizer.eos_token_id is None:
        raise ConfigError(
            f"the tokenizer of {model_name!r} has no end token: completions would never end",
            hint="set eos_token in its tokenizer_config.json",
        )
    if tokenizer.chat_template is None:
        return
    try:
        dialogue = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        text = str(tokenizer.apply_chat_template(dialogue, tokenize=False))
    except Exception as error:  # noqa: BLE001 - a template may raise whatever it likes
        context.warn(f"the chat template fails on a plain dialogue: {str(error).splitlines()[0]}")
        return
    if tokenizer.eos_token not in text[text.rfind("b") :]:
        context.warn(
            f"the chat template does not end an assistant turn with {tokenizer.eos_token!r}, the tokenizer's end "
            "token: replies may run to the token limit"
        )


def _memory_text(estimate: int, free: int, parameters: int) -> str:
    return (
        f"weights, gradients and optimiser of {parameters / 1e6:.0f}M parameters take about {human(estimate)}, without "
        f"activations; {human(free)} are free"
    )


def _memory_hint(config: TrlConfig) -> str:
    return "a smaller model" if config.lora_r is not None else "train LoRA adapters: --lora-r 16, or a smaller model"
