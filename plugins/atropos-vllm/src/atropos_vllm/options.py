"""Options of the backend, and the arguments of vLLM's engine and of its requests that follow from them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Literal

from atropos_cli.sdk import Config, ConfigError, Field
from atropos_cli.sdk.backends import Sampling

ALONE_SHARE, BESIDE_SHARE = 0.9, 0.3
"""Of the GPU's memory: without and with a trainer beside the engine."""

_OURS = {
    "model": "--model",
    "tokenizer": "--model",
    "dtype": "--backend.dtype",
    "max_model_len": "--backend.max-model-len",
    "max_num_seqs": "--backend.max-num-seqs",
    "gpu_memory_utilization": "--backend.gpu-memory-utilization",
    "enforce_eager": "--backend.enforce-eager",
    "enable_sleep_mode": "--backend.sleep",
    "logprobs_mode": "--backend.logprobs",
}
_FIXED = {
    "load_format": "weights come from the model's folder, or from the trainer's memory",
    "generation_config": "samplings are those of the run",
    "seed": "each sample has a seed of its own, from the run's --seed",
    "skip_tokenizer_init": "stop texts need the tokenizer",
    "tensor_parallel_size": "the engine has one device here",
    "pipeline_parallel_size": "the engine has one device here",
    "data_parallel_size": "the engine has one device here",
    "distributed_executor_backend": "the engine runs in this process",
}


class VllmConfig(Config):
    """Options of the backend `vllm`."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="Number format; auto: on a GPU the model's, in 16 bits for a float32 one; float32 on a CPU.",
    )
    max_model_len: int | None = Field(
        default=None, ge=2, description="Most tokens of prompt and completion together; default: the model's."
    )
    max_num_seqs: int | None = Field(
        default=None, ge=1, description="Samples that run at a time; default: vLLM's, by the GPU."
    )
    gpu_memory_utilization: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of the GPU's memory for weights and cache of vLLM; default: 0.9, beside a trainer 0.3.",
    )
    enforce_eager: bool = Field(
        default=False, description="No compilation and no CUDA graphs: a faster start, slower tokens."
    )
    sleep: bool = Field(
        default=False,
        description="Beside a trainer: give the GPU's memory back while it takes its step. Only where vLLM can.",
    )
    chat_template: str = Field(
        default="auto",
        description="auto: the model's own; plain: contents joined by blank lines, for base models and few-shot "
        "prompts; or the path of a Jinja template.",
    )
    logprobs: Literal["auto", "raw", "tempered"] = Field(
        default="auto",
        description="raw: of the model's own distribution; tempered: of the one that is sampled from "
        "(after temperature, top-k, top-p and min-p); auto: tempered beside a trainer, else raw.",
    )
    engine: dict[str, object] = Field(
        default_factory=dict,
        description='Further arguments of vLLM\'s engine as JSON, e.g. {"kv_cache_dtype": "fp8"}.',
    )


def engine_arguments(config: VllmConfig, folder: str, *, adopted: bool) -> dict[str, Any]:
    """The arguments of vLLM's EngineArgs. adopted: `folder` holds no weights, they come from a trainer."""
    share = config.gpu_memory_utilization or (BESIDE_SHARE if adopted else ALONE_SHARE)
    arguments: dict[str, Any] = {
        "model": folder,
        "dtype": config.dtype,
        "gpu_memory_utilization": share,
        "enforce_eager": config.enforce_eager,
        "load_format": "dummy" if adopted else "auto",
        "logprobs_mode": "processed_logprobs" if tempered(config, adopted=adopted) else "raw_logprobs",
        "seed": 0,
        "generation_config": "vllm",  # not the model folder's: a request brings its sampling and end tokens
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    for name in ("max_model_len", "max_num_seqs"):
        if (value := getattr(config, name)) is not None:
            arguments[name] = value
    if adopted and config.sleep:
        arguments["enable_sleep_mode"] = True
    return {**arguments, **_checked(config.engine)}


def tempered(config: VllmConfig, *, adopted: bool) -> bool:
    """Do log-probabilities count the sampling parameters?"""
    return config.logprobs == "tempered" or (config.logprobs == "auto" and adopted)


def _checked(extra: Mapping[str, object]) -> dict[str, object]:
    for name in extra:
        if name in _OURS:
            raise ConfigError(f"--backend.engine {name!r} is an option of its own", hint=f"give {_OURS[name]}")
        if name in _FIXED:
            raise ConfigError(f"--backend.engine {name!r} cannot be given: {_FIXED[name]}", hint="leave it out")
    return dict(extra)


def check_known(arguments: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises ConfigError for an argument that this vLLM does not have."""
    for name in arguments:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise ConfigError(
                f"vLLM's engine has no argument {name!r}",
                hint=f"did you mean {close[0]!r}?" if close else "see the engine arguments of the installed vLLM",
            )


def sampling_arguments(
    sampling: Sampling, *, limit: int, seed: int, end_ids: Collection[int], logprobs: bool = True
) -> dict[str, Any]:
    """The arguments of vLLM's SamplingParams for one sample; left-out values mean temperature 1, no truncation."""
    top_k = sampling.top_k or 0
    stop = [text for text in sampling.stop if text]
    return {
        "n": 1,  # vLLM refuses several greedy ones, and makes requests of one out of the others
        "max_tokens": limit,
        "temperature": 1.0 if sampling.temperature is None else sampling.temperature,
        "top_p": 1.0 if sampling.top_p is None else sampling.top_p,
        "top_k": max(0, top_k),
        "min_p": sampling.min_p or 0.0,
        "stop": stop,
        "stop_token_ids": sorted(end_ids),
        "seed": seed,
        "logprobs": 0 if logprobs else None,  # 0: of the sampled token alone
        "detokenize": bool(stop),
    }


def score_arguments() -> dict[str, Any]:
    """The arguments of vLLM's SamplingParams to have the prompt scored; one token is sampled and thrown away."""
    return {"n": 1, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0, "detokenize": False}
