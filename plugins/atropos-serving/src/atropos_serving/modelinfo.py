"""What a model's config.json says that matters for serving: attention heads, layers, bytes of weights.

Found without any model library: in a folder, in the hub's cache, or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8_e4m3fn": 1.0}
_QUANTIZED = {"fp8": 1.0, "mxfp4": 0.55, "nvfp4": 0.6, "modelopt": 0.6}
_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """weights: bytes, from the files where they are there (exact), else worked out from the sizes.

    kv_bytes: of the cache, per token. heads 0: not in the file.
    """

    name: str
    heads: int
    kv_heads: int
    layers: int
    weights: int
    kv_bytes: int
    context: int
    exact: bool = False
    experts: int = 0
    dtype: str | None = None


def find_model(model: str, environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder of a model: the path itself, or the newest snapshot in the hub's cache; None when it is not here."""
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder
    if model.count("/") > 1 or model.startswith((".", "/", "~")):
        return None
    place = hub_cache(environ) / f"models--{model.replace('/', '--')}"
    try:
        revision = (place / "refs" / "main").read_text(encoding="ascii").strip()
        names = [revision]
    except (OSError, UnicodeDecodeError):
        snapshots = place / "snapshots"
        names = [item.name for item in snapshots.iterdir()] if snapshots.is_dir() else []
    for name in names:
        if name and "/" not in name and (place / "snapshots" / name / "config.json").is_file():
            return place / "snapshots" / name
    return None


def hub_cache(environ: Mapping[str, str] | None = None) -> Path:
    """Where the hub's library keeps downloads."""
    env = os.environ if environ is None else environ
    if env.get("HF_HUB_CACHE"):
        return Path(env["HF_HUB_CACHE"]).expanduser()
    if env.get("HF_HOME"):
        return Path(env["HF_HOME"]).expanduser() / "hub"
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "huggingface" / "hub"


def read_model(folder: Path, name: str) -> ModelInfo | None:
    """From a model's folder; None when config.json cannot be used."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return model_info(config, name, files=_weight_files(folder)) if isinstance(config, dict) else None


def model_info(config: dict[str, Any], name: str, *, files: int = 0) -> ModelInfo:
    """From the content of config.json. files: bytes of the weight files, 0 when they are not here."""
    text = config.get("text_config")
    core: dict[str, Any] = {**config, **text} if isinstance(text, dict) else config

    def number(*keys: str, default: int = 0) -> int:
        for key in keys:
            value = core.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return default

    heads = number("num_attention_heads", "n_head")
    kv_heads = number("num_key_value_heads", "multi_query_group_num", default=heads)
    layers = number("num_hidden_layers", "n_layer")
    hidden = number("hidden_size", "n_embd")
    head = number("head_dim", default=hidden // heads if heads else 0)
    experts = number("num_local_experts", "n_routed_experts", "num_experts")
    dtype = core.get("dtype") or core.get("torch_dtype")
    per_token = 2 * layers * kv_heads * head
    latent = number("kv_lora_rank")
    if latent:  # multi-head latent attention keeps one compressed vector per token
        per_token = layers * (latent + number("qk_rope_head_dim"))
    return ModelInfo(
        name=name,
        heads=heads,
        kv_heads=kv_heads,
        layers=layers,
        weights=files or int(_parameters(core, number, head, experts) * _bytes_each(config, dtype)),
        kv_bytes=2 * per_token,
        context=number("max_position_embeddings", "n_positions", "seq_length", default=_DEFAULT_CONTEXT),
        exact=files > 0,
        experts=experts,
        dtype=str(dtype) if dtype else None,
    )


def _parameters(core: dict[str, Any], number: Any, head: int, experts: int) -> int:
    """Of a decoder with gated feed-forward layers; within some percent for the families in use."""
    hidden, layers = number("hidden_size", "n_embd"), number("num_hidden_layers", "n_layer")
    heads = number("num_attention_heads", "n_head")
    inner = number("intermediate_size", "n_inner", default=4 * hidden)
    kv_heads = number("num_key_value_heads", default=heads)
    attention = 2 * hidden * head * (heads + kv_heads)
    dense = 3 * hidden * inner
    if experts:
        expert = 3 * hidden * number("moe_intermediate_size", default=inner)
        shared = number("n_shared_experts") * expert
        first = min(number("first_k_dense_replace"), layers)
        feed = first * dense + (layers - first) * (experts * expert + shared)
    else:
        feed = layers * dense
    embeddings = number("vocab_size") * hidden * (1 if core.get("tie_word_embeddings") else 2)
    return int(layers * attention + feed + embeddings)


def _bytes_each(config: dict[str, Any], dtype: Any) -> float:
    quantized = config.get("quantization_config")
    if isinstance(quantized, dict):
        bits = quantized.get("bits")
        if isinstance(bits, int) and 1 <= bits <= 16:
            return bits / 8 + 0.05
        return _QUANTIZED.get(str(quantized.get("quant_method")), 1.0)
    return _BYTES.get(str(dtype), 2.0)


def _weight_files(folder: Path) -> int:
    """Bytes of the weights in a folder: safetensors, else the older format."""
    for pattern in ("*.safetensors", "pytorch_model*.bin"):
        total = sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())
        if total:
            return total
    return 0
