"""From a model's name (see sdk.models.find_model) to a loaded model and tokenizer.

Everything that goes wrong here ends the run, so it is a FatalBackendError that says what to do.
"""

from __future__ import annotations

import contextlib
import copy
import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import FatalBackendError
from atropos_cli.sdk.models import ModelSource, find_model, loading_model
from atropos_local import gguf

from .runtime import is_memory_error

if TYPE_CHECKING:
    import torch

_REACH_TIMEOUT = 5.0
_SOFTCAP_FIELD = "attn_logit_softcapping"


@dataclass(frozen=True)
class Loaded:
    """A model in evaluation mode on its device, and its tokenizer."""

    model: Any
    tokenizer: Any


def resolve(name: str) -> ModelSource:
    """Find what `name` means; looks at this machine only. Raises FatalBackendError."""
    with _fatal():
        return find_model(name, adapters=True)


@contextlib.contextmanager
def _fatal() -> Iterator[None]:
    """What is wrong with a model ends the run."""
    try:
        yield
    except ConfigError as error:
        raise FatalBackendError(error.message, hint=error.hint) from error


def load(source: ModelSource, *, device: torch.device, dtype: torch.dtype, use_cache: bool) -> Loaded:
    """Load the tokenizer and the weights. use_cache: keep a dequantised copy of a GGUF file for the next time."""
    with loading_model():
        if source.kind == "gguf":
            model, tokenizer = _load_gguf(Path(source.location), dtype, use_cache)
        else:
            model, tokenizer = _load_pretrained(source, dtype)
    if tokenizer.chat_template is None and source.template is not None:
        tokenizer.chat_template = source.template
    if getattr(model.config, _SOFTCAP_FIELD, None) is not None:
        model.set_attn_implementation("eager")  # sdpa has no logit soft-capping
    return Loaded(_place(model, source, device, dtype), tokenizer)


def _load_gguf(path: Path, dtype: torch.dtype, use_cache: bool) -> tuple[Any, Any]:
    with _fatal():
        return gguf.load(path, gguf.gguf_header(path), dtype=dtype, use_cache=use_cache)


def _load_pretrained(source: ModelSource, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    location, local_only = source.location, source.kind == "folder"
    if source.kind == "hub" and not _hub_reachable():
        location, local_only = _hub_copy(source), True
    options: dict[str, Any] = {"local_files_only": local_only, "trust_remote_code": False}
    try:
        model, found = AutoModelForCausalLM.from_pretrained(location, dtype=dtype, output_loading_info=True, **options)
    except Exception as error:  # the loader raises whatever a damaged or unknown model makes it raise
        raise _load_error(source, error) from error
    _check_complete(source, found["missing_keys"])
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, **options)
    except Exception as error:  # as above
        raise _tokenizer_error(source, _first_line(error)) from error
    expected = model.get_input_embeddings().weight.shape[0]
    if 2 * len(tokenizer) < expected:  # without files of its own an empty one is made up
        raise _tokenizer_error(source, f"it has {len(tokenizer)} tokens, the model {expected}")
    return model, tokenizer


def _hub_copy(source: ModelSource) -> str:
    """The folder of the copy fetched earlier, asking no network; the loaders by themselves would retry for long."""
    from huggingface_hub import snapshot_download

    try:
        return str(snapshot_download(source.location, local_files_only=True))
    except (OSError, ValueError) as error:
        raise FatalBackendError(
            f"model {source.location!r} is not on this machine, and the Hugging Face hub cannot be reached",
            hint="go online once to fetch it, give a local folder or .gguf file, or use --model smollm2",
        ) from error


def load_weights(model: Any, folder: str) -> None:
    """Replace the weights of a loaded model by those in a folder of the same architecture, in place.

    Raises FatalBackendError when they do not fit.
    """
    import torch
    from safetensors import SafetensorError

    try:
        if getattr(model.config, "quantization_config", None) is not None:
            raise ValueError("the model that runs is quantised")
        with loading_model():
            # By the configuration of the model that runs: of a folder without one, as while it is being removed,
            # transformers makes a model of the architecture's default size, which may fill the memory.
            loaded, told = type(model).from_pretrained(
                folder,
                config=copy.deepcopy(model.config),
                dtype=model.dtype,
                local_files_only=True,
                output_loading_info=True,
            )
        own, other = model.state_dict(), loaded.state_dict()
        wrong = {name for name in own.keys() | other.keys() if _shape(own, name) != _shape(other, name)}
        wrong |= {*told["missing_keys"], *told["unexpected_keys"]}  # those missing have been drawn at random
        if wrong:  # torch would copy those that fit before it complains
            raise ValueError(f"{len(wrong)} tensors differ in name or shape, the first is {min(wrong)}")
        with torch.no_grad():
            model.load_state_dict(other)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise FatalBackendError(
            f"the weights in {folder!r} cannot be taken: {_first_line(error)}",
            hint="they must be a folder written by save_pretrained, of the model that runs",
        ) from error


def _shape(tensors: dict[str, Any], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None


def _load_error(source: ModelSource, error: Exception) -> FatalBackendError:
    text = str(error)
    if is_memory_error(error):
        return FatalBackendError(
            f"there is no memory to load model {source.label!r}: {_first_line(error)}",
            hint="use a smaller model, or --backend.dtype bfloat16",
        )
    if source.kind == "hub" and isinstance(error, OSError):
        if "gated" in text or "401" in text or "403" in text:
            return FatalBackendError(
                f"model {source.location!r} needs a Hugging Face account with access to it",
                hint="accept its licence on huggingface.co, then run: hf auth login",
            )
        if "not a valid model identifier" in text or "404" in text:
            return FatalBackendError(
                f"model {source.location!r} is neither a local path nor a model of the Hugging Face hub",
                hint="check the spelling; the form is OWNER/NAME, a folder, a .gguf file, or smollm2",
            )
    if "trust_remote_code" in text:
        return FatalBackendError(
            f"model {source.label!r} needs Python code from its repository, which is never run here",
            hint="serve it with SGLang or vLLM and give --base-url",
        )
    return FatalBackendError(
        f"model {source.label!r} cannot be loaded: {type(error).__name__}: {_first_line(error)}",
        hint="it must be a causal language model that transformers knows; see its files or try a newer transformers",
    )


def _tokenizer_error(source: ModelSource, why: str) -> FatalBackendError:
    return FatalBackendError(
        f"model {source.label!r} has no usable tokenizer: {why}",
        hint="put the tokenizer's files (tokenizer.json, tokenizer_config.json) beside config.json",
    )


def _check_complete(source: ModelSource, missing: Iterable[str]) -> None:
    """Refuse a model without some of its weights: transformers only warns, and makes up random ones."""
    if names := sorted(missing):
        raise FatalBackendError(
            f"model {source.label!r} came without the weights of {len(names)} tensors, the first is {names[0]}",
            hint="the files in its folder are not complete, or its config.json is of another model",
        )


def _place(model: Any, source: ModelSource, device: torch.device, dtype: torch.dtype) -> Any:
    _check_complete(source, [name for name, tensor in model.named_parameters() if tensor.is_meta])
    try:
        return model.to(device=device, dtype=dtype).eval()
    except (MemoryError, RuntimeError) as error:
        if is_memory_error(error):
            raise FatalBackendError(
                f"model {source.label!r} does not fit on device {device}: {_first_line(error)}",
                hint="use a smaller model, --backend.device cpu, or --backend.dtype bfloat16",
            ) from error
        raise FatalBackendError(
            f"model {source.label!r} cannot be moved to device {device}: {type(error).__name__}: {_first_line(error)}",
            hint="give --backend.device cpu to see whether it is the device",
        ) from error


def _hub_reachable() -> bool:
    """Can the hub be asked? Known in a moment here, where the hub's own client would retry for long."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return False
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    parts = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_REACH_TIMEOUT):
            return True
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0]
