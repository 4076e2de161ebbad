"""Options as they count: what is sampled with, what follows from the run's own settings, what would mean nothing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.training import TrainPlan

from .config import TrlConfig
from .recipes import RECIPES

DATA_COMPLETION = 256
DATA_GENERATIONS = 8

_OF_DATA = {"group_size": "num_generations", "temperature": "temperature", "max_tokens": "max_completion_length"}
"""Settings of the run and the options of that meaning where TRL generates (--data)."""
_TO_TRL = ("top_p", "top_k", "min_p")

_GRPO_ONLY = frozenset(
    {
        "algorithm",
        "epsilon",
        "epsilon_high",
        "num_iterations",
        "mask_truncated",
        "behaviour_logprobs",
        "allow_constant_reward",
        "max_prompt_tokens",
        "max_completion_length",
        "num_generations",
        "temperature",
    }
)
_GENERATING = {
    "top_p": "--top-p",
    "top_k": "--top-k",
    "min_p": "--min-p",
    "use_vllm": "--base-url of a running server",
    "repetition_penalty": None,
    "generation_kwargs": None,
    "cache_implementation": None,
    "use_transformers_continuous_batching": None,
    "transformers_continuous_batching_config": None,
    "max_tool_calling_iterations": None,
    "chat_template_kwargs": None,
}
"""Names of TRL's config that are for its own generation, and what counts instead where the engine samples."""


def propose(
    config: TrlConfig, method: str, given: Mapping[str, Any], *, live: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(values for the run, values for own options): the preset's recipe, and for --data the run's sampling."""
    recipe = RECIPES.get(config.preset)
    options: dict[str, Any] = {}
    if recipe is not None:
        options = {name: value for name, value in recipe.options.items() if name not in config.model_fields_set}
    if method != "grpo":
        return {}, options
    run: dict[str, Any] = {}
    if recipe is not None:
        run = {name: value for name, value in recipe.sampling.items() if name not in given}
        if recipe.rows is not None:
            size = (
                (None if live else config.num_generations) or given.get("group_size") or recipe.sampling["group_size"]
            )
            run["prompts_per_step"] = max(1, recipe.rows // size)
    if live:
        return run, options
    if given.get("stop"):
        raise ConfigError("--stop: TRL generates for --data, and knows no stop texts", hint="leave --stop out")
    both = {**run, **given}
    options |= {
        option: both[setting]
        for setting, option in _OF_DATA.items()
        if both.get(setting) is not None and getattr(config, option) is None
    }
    more = {name: given[name] for name in _TO_TRL if given.get(name) is not None and name not in config.extra}
    if more.get("top_k") == -1:
        more["top_k"] = 0  # each its own way to say "all"
    if more:
        options["extra"] = {**config.extra, **more}
    return run, options


def completion_limit(config: TrlConfig, plan: TrainPlan) -> int:
    """Tokens a completion may have; dr_grpo's constant."""
    if config.max_completion_length is not None:
        return config.max_completion_length
    if plan.rollouts is None:
        return DATA_COMPLETION
    return plan.rollouts.sampling.max_tokens or DATA_COMPLETION


def temperature(config: TrlConfig, plan: TrainPlan) -> float:
    """The temperature completions are sampled at."""
    value = plan.rollouts.sampling.temperature if plan.rollouts is not None else config.temperature
    return 1.0 if value is None else value


def generations(config: TrlConfig, plan: TrainPlan) -> int:
    """Completions of a prompt."""
    if plan.rollouts is not None:
        return plan.rollouts.group_size
    return DATA_GENERATIONS if config.num_generations is None else config.num_generations


def check_options(config: TrlConfig, plan: TrainPlan) -> None:
    """Raises ConfigError for an option that was given and has no effect, with the one that counts."""
    given = [
        name
        for name, field in TrlConfig.model_fields.items()
        if getattr(config, name) != field.get_default(call_default_factory=True)
    ]
    for name in given:
        instead = _without_effect(name, config, plan)
        if instead is not None:
            where = plan.method if plan.method != "grpo" else "grpo --env" if plan.rollouts else "grpo --data"
            flag = "trainer.temperature" if name == "temperature" else name.replace("_", "-")
            raise ConfigError(f"--{flag} means nothing to {where}", hint=instead)
    if plan.method == "grpo":
        _check_generating(config, live=plan.rollouts is not None)


def _without_effect(name: str, config: TrlConfig, plan: TrainPlan) -> str | None:
    """What to do instead; None for an option that counts."""
    if plan.method != "grpo":
        if name == "max_prompt_tokens":
            return "--max-length"
        if name == "beta":
            return None if plan.method in ("dpo", "kto") else "leave it out: it is for grpo, dpo and kto"
        return "leave it out: it is for grpo" if name in _GRPO_ONLY else None
    if name == "max_length":
        return "--max-prompt-tokens and --max-tokens"
    if plan.rollouts is None:
        return "leave it out: TRL samples with the weights it trains" if name == "behaviour_logprobs" else None
    if name == "num_generations":
        return f"--group-size {config.num_generations}"
    if name == "temperature":
        return f"--temperature {config.temperature:g}"
    counts = config.algorithm == "dr_grpo" or plan.rollouts.sampling.max_tokens is None
    if name == "max_completion_length" and not counts:
        return f"--max-tokens {config.max_completion_length}"
    return None


def _check_generating(config: TrlConfig, *, live: bool) -> None:
    for name in config.extra:
        if live and (name in _GENERATING or name.startswith("vllm_")):
            instead = _GENERATING.get(name)
            raise ConfigError(
                f"extra: {name!r} means nothing here: the engine samples, not TRL",
                hint=f"use {instead}" if instead else "leave it out; see the sampling options and --backend",
            )
    if config.extra.get("use_vllm") and find_spec("vllm") is None:
        raise ConfigError("extra: 'use_vllm' needs the package vllm", hint="pip install vllm, or leave it out")
