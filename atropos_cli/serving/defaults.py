"""Safe server options per kind of GPU: those set unless the user gives others. `atropos doctor` shows them.

Where an engine measures something itself and does it well (SGLang's memory fraction, the attention backend on
newer GPUs), nothing is set and None stands here.

    V100     no bfloat16 (it begins with compute capability 8.0), no FlashAttention: float16 and Triton kernels
    A100     bfloat16; at most 256 sequences, more lowers the rate there
    H100...  bfloat16; large batches
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atropos_cli.ports.serving import Engine
from atropos_cli.serving.platforms import Platform

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Defaults:
    """dtype: of weights and activations. memory_fraction: of a GPU's memory for weights and cache.

    max_requests: sequences that one server works on at once. eager: no compilation and no CUDA graphs.
    """

    dtype: str = "auto"
    attention_backend: str | None = None
    memory_fraction: float | None = None
    max_requests: int | None = None
    eager: bool = False
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "dtype": self.dtype,
            "attention_backend": self.attention_backend,
            "memory_fraction": self.memory_fraction,
            "max_requests": self.max_requests,
            "eager": self.eager,
            "note": self.note,
        }


_MAX_REQUESTS = {"v100": 64, "a100": 256, "h100": 512, "h200": 512, "b200": 1024}
_TRITON: dict[Engine, str] = {"vllm": "TRITON_ATTN", "sglang": "triton"}


def defaults_for(platform: Platform, engine: Engine) -> Defaults:
    """What fits this machine."""
    if platform.profile == "cpu":
        note = "no GPU: vLLM's CPU build, small batches, nothing compiled" if engine == "vllm" else ""
        return Defaults("bfloat16" if engine == "vllm" else "auto", max_requests=8, eager=True, note=note)
    if platform.profile == "rocm":
        return Defaults(note="not known for ROCm: the engine's own choices")
    fraction = 0.9 if engine == "vllm" else None
    requests = _MAX_REQUESTS.get(platform.profile, 128)
    if platform.bf16 is False:
        note = "no bfloat16 and no FlashAttention below compute capability 8.0"
        if engine == "sglang" and any((gpu.capability or (8, 0)) < (7, 5) for gpu in platform.gpus):
            note += "; SGLang's kernels are built for 7.5 and later, so it may not start here: use vLLM"
        return Defaults("float16", _TRITON[engine], fraction, requests, note=note)
    dtype = "bfloat16" if platform.bf16 else "auto"
    note = "" if platform.bf16 else "the compute capability is not known: the engine chooses the dtype"
    return Defaults(dtype, None, fraction, requests, note=note)


def cpu_cache_gib(platform: Platform) -> int:
    """Room for the key-value cache of a CPU server: an eighth of the memory, 1 to 16 GiB."""
    return max(1, min(16, (platform.memory or 8 * GIB) // (8 * GIB)))
