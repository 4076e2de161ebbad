"""What can be refused before a model is loaded (contradictions, sizes, memory, disk), or once it and its tokenizer are.

Both trainers call these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.training import TrainContext, TrainPlan

from .common import checkpoints
from .common.machine import free_disk, free_memory, human, processes_here
from .common.models import Facts, facts
from .config import TrlConfig
from .extra import check_extra
from .loop import ADAM_BYTES, FLOAT_BYTES, STATE_BYTES
from .options import check_options, completion_limit, temperature
from .presets import Resolved, preset_differences
from .sizes import Sizes

SAVES_IN_A_RUN = 10
LORA_SHARE = 0.05
_GPU = Path("/proc/driver/nvidia")
_ROW_BYTES = 4096
"""A rollout's own objects, at least."""
_TOKEN_BYTES = 48
"""Id, mask and log-probability of a sampled token as Python objects."""


@dataclass(frozen=True)
class Footprint:
    """What a trainer keeps of a model: are only adapters trained, is there a reference model beside it?"""

    lora: bool
    reference: bool

    def memory(self, parameters: int) -> int:
        """Bytes of weights, gradients, Adam's moments and a reference model; activations come on top."""
        weights = parameters * FLOAT_BYTES
        if self.lora:
            return int(weights * (1 + LORA_SHARE * (1 + ADAM_BYTES / FLOAT_BYTES)))
        return 2 * weights + parameters * ADAM_BYTES + (weights if self.reference else 0)

    def on_cpu(self, parameters: int) -> int:
        """The same of a process that computes on the CPU."""
        return self.memory(parameters)

    def checkpoint(self, parameters: int) -> int:
        """Bytes of one checkpoint."""
        trained = parameters * (LORA_SHARE if self.lora else 1.0)
        return int(trained * (FLOAT_BYTES + ADAM_BYTES)) + STATE_BYTES


def footprint(config: TrlConfig, plan: TrainPlan, resolved: Resolved) -> Footprint:
    """That of the trainer `trl`."""
    lora = config.lora_r is not None
    return Footprint(lora, bool(resolved.beta) and plan.method in ("grpo", "dpo", "kto") and not lora)


def check_all(config: TrlConfig, plan: TrainPlan, resolved: Resolved, sizes: Sizes) -> JsonDict:
    """Everything that needs no model. Raises ConfigError; returns what --dry-run shows."""
    check_extra(config.extra, plan.method)
    if plan.method == "reward" and plan.suites:
        raise ConfigError(
            "a reward model writes no text: --eval cannot judge it",
            hint="leave --eval out; atropos score RUN --reward reward-model compares it with other rewards",
        )
    check_options(config, plan)
    known = facts(plan.model)
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
        check_pulled(plan, config.num_iterations)
        check_batch_memory(sizes.rows, completion_limit(config, plan))
        different = preset_differences(config, plan)
        if different:
            shown["differs_from_preset"] = {name: list(pair) for name, pair in different.items()}
    check_lengths(config, plan, known.context)
    if known.parameters is not None:
        shown |= check_memory(known.parameters, footprint(config, plan, resolved))
    return shown


def check_lengths(config: TrlConfig, plan: TrainPlan, context: int | None) -> None:
    """Do rows fit the model's context, as far as it is known? Raises ConfigError."""
    if plan.method != "grpo":
        if config.max_length is not None and context is not None and config.max_length > context:
            raise ConfigError(
                f"--max-length {config.max_length} is more than the model's context of {context} tokens",
                hint=f"--max-length {context}",
            )
        return
    live = plan.rollouts is not None
    completion = plan.rollouts.sampling.max_tokens if plan.rollouts else completion_limit(config, plan)
    option = "--max-tokens" if live else "--max-completion-length"
    check_context(plan, context, completion or 0, config.max_prompt_tokens, option=option)


def check_context(
    plan: TrainPlan, context: int | None, completion: int, prompt: int | None, *, option: str = "--max-tokens"
) -> None:
    """Do a prompt and a completion fit? option: the one that limits completions. Raises ConfigError."""
    own = plan.rollouts.backend.config.get("context") if plan.rollouts is not None else None
    if isinstance(own, int):
        context = min(own, context) if context is not None else own
    least = prompt or 1
    if context is None or least + completion <= context:
        return
    asked = f"prompts of up to {prompt} tokens and " if prompt is not None else ""
    raise ConfigError(
        f"{asked}completions of up to {completion} tokens ({least + completion} together) do not fit the model's "
        f"context of {context}",
        hint=f"{option} {max(1, context - least)}"
        + (f", or --max-prompt-tokens {context - completion}" if prompt is not None and completion < context else ""),
    )


def check_memory(parameters: int, what: Footprint) -> JsonDict:
    """The estimate against free memory, from the number of parameters alone. Raises ConfigError."""
    estimate = what.memory(parameters)
    free, processes = free_memory(), processes_here()
    if free is not None and not _GPU.exists() and (needed := processes * what.on_cpu(parameters)) > free:
        raise _no_memory(needed, free, parameters, what, processes)
    return {"parameters": parameters, "memory_estimate": human(estimate)}


def check_pulled(plan: TrainPlan, iterations: int) -> None:
    """One step a batch: the versions of the weights are counted in batches. Raises ConfigError."""
    if (plan.pull is not None or plan.async_steps) and iterations > 1:
        what = "--from" if plan.pull is not None else "--async-steps"
        raise ConfigError(
            f"--num-iterations {iterations}: a batch of {what} makes one step",
            hint="leave it out, or --num-iterations 1",
        )


def check_batch_memory(rows: int, completion: int) -> None:
    """Can a step's rollouts be held at all? Raises ConfigError."""
    needed, free = rows * (_ROW_BYTES + _TOKEN_BYTES * completion), free_memory()
    if free is not None and needed > free:
        raise ConfigError(
            f"{rows} completions of up to {completion} tokens in one step take about {human(needed)}; "
            f"{human(free)} are free",
            hint="a smaller --prompts-per-step or --group-size",
        )


def check_disk(folder: Path, parameters: int, what: Footprint, plan: TrainPlan) -> None:
    """Is there room for all checkpoints that exist at one time, and the final weights? Raises ConfigError.

    An old one goes only after the new one is whole: those to keep, the best where there are suites, and the new one.
    """
    copies = plan.keep_checkpoints + 1 + bool(plan.suites)
    if plan.steps is not None:
        saves = -(-plan.steps // plan.save_every) if plan.save_every else min(plan.steps, SAVES_IN_A_RUN + 1)
        if plan.suites and plan.eval_every:
            saves += plan.steps // plan.eval_every
        copies = min(copies, saves)
    there = min(copies - 1, len(checkpoints.checkpoints(folder)))
    needed = (copies - there) * what.checkpoint(parameters) + parameters * FLOAT_BYTES
    free = free_disk(folder)
    if free < needed:
        also = f" beside the {there} that are there" if there else ""
        raise ConfigError(
            f"{folder}: {human(free)} are free; up to {copies - there} checkpoints at a time{also} and the final "
            f"weights take {human(needed)}",
            hint="make room, choose another --output"
            + (", --keep-checkpoints 1" if plan.keep_checkpoints > 1 else "")
            + ("" if what.lora else ", or train LoRA adapters: --lora-r 16"),
        )


def check_loaded(model: Any, device: Any, what: Footprint, plan: TrainPlan, folder: Path) -> Facts:
    """Memory and disk once the model is there: the GPU's, and all of a model that had no headers to look at.

    Returns the facts, now certain. Raises ConfigError.
    """
    known = facts(plan.model)
    parameters = sum(math.prod(p.shape) for p in model.parameters())
    if known.parameters is None:
        check_disk(folder, parameters, what, plan)
    estimate = what.memory(parameters)
    if device.type == "cuda":
        free = free_memory(device)
        if free is not None and estimate > free:
            raise _no_memory(estimate, free, parameters, what)
    elif known.parameters is None:
        free = free_memory()
        if free is not None and estimate - parameters * FLOAT_BYTES > free:  # the weights themselves are there
            raise _no_memory(estimate, free + parameters * FLOAT_BYTES, parameters, what)
    context = known.context
    if context is None:
        text = getattr(model.config, "text_config", None) or model.config
        value = getattr(text, "max_position_embeddings", None)
        context = value if isinstance(value, int) else None
    return Facts(context, parameters)


def check_tokenizer(
    tokenizer: Any, model_name: str, context: TrainContext, *, ends: frozenset[int] = frozenset()
) -> None:
    """End token, padding and chat template. Raises ConfigError, or warns of what makes a model never stop.

    ends: the tokens at which the model stops, besides the tokenizer's end token.
    """
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
    marks = [tokenizer.eos_token, *tokenizer.convert_ids_to_tokens(sorted(ends))]
    if not any(mark and mark in text[text.rfind("b") :] for mark in marks):
        context.warn(
            f"the chat template does not end an assistant turn with {tokenizer.eos_token!r}, the tokenizer's end "
            "token: replies may run to the token limit"
        )


def check_constant(rewards: list[float], rows: int, cut: int, *, allowed: bool) -> None:
    """The first batch is the dry run of the rewards: a constant one teaches nothing. Raises ConfigError."""
    if allowed or not rewards or len(set(rewards)) > 1:
        return
    reason = f"; {cut} of {rows} completions are cut off by the token limit" if cut else ""
    raise ConfigError(
        f"all {len(rewards)} completions of the first batch have reward {rewards[0]:g}: every advantage is 0{reason}",
        hint="look at samples.jsonl: answer format, --max-tokens, an easier task, a larger --group-size; "
        "--allow-constant-reward trains anyway",
    )


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


def _no_memory(estimate: int, free: int, parameters: int, what: Footprint, processes: int = 1) -> ConfigError:
    of = f" in {processes} processes" if processes > 1 else ""
    return ConfigError(
        f"weights, gradients and optimiser of {parameters / 1e6:.0f}M parameters take about {human(estimate)}{of}, "
        f"without activations; {human(free)} are free",
        hint="a smaller model" if what.lora else "train LoRA adapters: --lora-r 16, or a smaller model",
    )
