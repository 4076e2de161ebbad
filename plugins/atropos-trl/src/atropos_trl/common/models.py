"""From a model's name (see sdk.models.find_model) to weights and tokenizer ready to train.

Weights are fp32 (mixed precision keeps bf16 to the activations), so that small learning rates still move them.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.models import ModelSource, find_model, loading_model, open_model_file
from atropos_cli.sdk.training import TrainerError


@dataclass(frozen=True)
class Facts:
    """What is known of a model without loading it; None: not known."""

    context: int | None = None
    parameters: int | None = None


def facts(name: str) -> Facts:
    """Context length and number of parameters, from headers alone: milliseconds, no heavy import."""
    source = find_model(name)
    if source.kind == "hub":
        return Facts()
    if source.kind == "gguf":
        with contextlib.suppress(ConfigError):
            file = open_model_file(Path(source.location))
            return Facts(file.context, file.parameters)
        return Facts()
    return _folder_facts(Path(source.location))


def load_tokenizer(name: str) -> Any:
    """The tokenizer alone, padding left, with a pad token. Raises TrainerError."""
    from transformers import AutoTokenizer

    source = find_model(name)
    location = _location(source)
    local = source.kind != "hub" or _offline()
    try:
        with loading_model():
            tokenizer = AutoTokenizer.from_pretrained(location, local_files_only=local, trust_remote_code=False)
    except Exception as error:  # the loader raises whatever a damaged or missing file makes it raise
        raise TrainerError(
            f"the tokenizer of model {name!r} cannot be loaded: {_first_line(error)}",
            hint="put the tokenizer's files (tokenizer.json, tokenizer_config.json) beside config.json",
        ) from error
    if tokenizer.chat_template is None and source.template is not None:
        tokenizer.chat_template = source.template
    tokenizer.padding_side = "left"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def end_ids(name: str) -> frozenset[int]:
    """The tokens at which the model's generation_config.json stops; none where it has none."""
    from transformers import GenerationConfig

    source = find_model(name)
    if source.kind == "gguf":
        return frozenset()
    local = source.kind != "hub" or _offline()
    try:
        with loading_model():
            config = GenerationConfig.from_pretrained(_location(source), local_files_only=local)
    except Exception:  # noqa: BLE001 - a model need not have one, and the loader raises many things
        return frozenset()
    return frozenset(as_ids(config.eos_token_id))


def as_ids(value: Any) -> list[int]:
    """One id, several, or none, as configurations write them."""
    return [value] if isinstance(value, int) else list(value or ())


def four_bits(half: Any) -> Any:
    """QLoRA's quantisation (arXiv 2305.14314): 4-bit NormalFloat, its constants quantised too; computed in `half`."""
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=half or torch.float32,
    )


def load_model(name: str, *, attention: str | None = None, bits: Any = None, device: Any = None) -> Any:
    """The weights in fp32 on the CPU, in training mode. bits: quantised so, on `device`. Raises TrainerError.

    Raises ConfigError for a model that is stored with quantised weights: these are not trained, or merged into.
    The model's `_name_or_path` is a place that transformers can load again (a reference model is made so).
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    source = find_model(name)
    location = _location(source)
    options: dict[str, Any] = {"local_files_only": source.kind != "hub" or _offline(), "trust_remote_code": False}
    if attention is not None:
        options["attn_implementation"] = attention
    small = False
    try:
        with loading_model():
            if bits is not None:
                small = hasattr(AutoConfig.from_pretrained(location, **options), "quantization_config")
                options |= {"quantization_config": bits, "device_map": {"": device}}
            model = AutoModelForCausalLM.from_pretrained(location, dtype=torch.float32, **options)
    except Exception as error:  # as above
        raise TrainerError(
            f"model {name!r} cannot be loaded: {type(error).__name__}: {_first_line(error)}",
            hint="it must be a causal language model that transformers knows; offline, it must be on this machine",
        ) from error
    # Some formats are made whole as they are loaded; transformers then takes the mark away.
    if small or (bits is None and getattr(model, "is_quantized", False)):
        raise ConfigError(
            f"the weights of model {name!r} are stored quantised, and quantised weights are not trained",
            hint="the model that it was made from; --lora-r 16 --lora-4bit quantises that as it is loaded",
        )
    if bits is not None:
        # On some CPUs bitsandbytes converts weights when a model samples, and these pass no gradient.
        for module in model.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
    model.train()
    return model


def load_reward_model(name: str) -> Any:
    """The model with one number per text as its output, in fp32 on the CPU, in training mode. Raises TrainerError.

    A causal language model gets a new head of one output, drawn by torch's seed; a reward model keeps its own.
    """
    from transformers import AutoModelForSequenceClassification

    source = find_model(name)
    try:
        with loading_model(), quiet():
            if is_reward_model(name):
                model = AutoModelForSequenceClassification.from_pretrained(
                    _location(source), dtype=_fp32(), local_files_only=True, trust_remote_code=False
                )
            else:
                causal = load_model(name)
                config = copy.deepcopy(causal.config)
                config.num_labels = 1
                model = AutoModelForSequenceClassification.from_config(config).to(_fp32())
                model.base_model.load_state_dict(causal.base_model.state_dict())
                model.config._name_or_path = causal.config._name_or_path
    except (ConfigError, TrainerError):
        raise
    except Exception as error:  # as above
        raise TrainerError(
            f"model {name!r} cannot be made a reward model: {type(error).__name__}: {_first_line(error)}",
            hint="transformers must have a sequence classifier of its architecture",
        ) from error
    if model.config.num_labels != 1:
        raise ConfigError(
            f"{name!r} is not a reward model: it separates {model.config.num_labels} classes; a reward is one number",
            hint="a model with one output, as `atropos train reward` makes it of a language model",
        )
    model.train()
    return model


def is_reward_model(name: str) -> bool:
    """Does the model give one number per text, by its config.json?"""
    source = find_model(name)
    if source.kind in ("hub", "gguf"):
        return False
    with contextlib.suppress(OSError, ValueError):
        config = json.loads((Path(source.location) / "config.json").read_text(encoding="utf-8"))
        return any(str(known).endswith("ForSequenceClassification") for known in config.get("architectures") or ())
    return False


def _fp32() -> Any:
    import torch

    return torch.float32


def check_pair(model: Any, tokenizer: Any, name: str) -> int:
    """Do weights and tokenizer belong together? Returns the rows of the embedding. Raises ConfigError."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    if len(tokenizer) > rows:
        raise ConfigError(
            f"model {name!r}: the tokenizer has {len(tokenizer)} tokens, the embedding only {rows} rows",
            hint="they do not belong together: use the tokenizer that came with the model",
        )
    return rows


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars or advice from transformers: stderr belongs to atropos."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _location(source: ModelSource) -> str:
    """What transformers loads. Raises TrainerError for a GGUF file that cannot be made into a folder."""
    if source.kind != "gguf":
        return source.location
    try:
        return str(open_model_file(Path(source.location)).folder())
    except ConfigError as error:
        raise TrainerError(error.message, hint=error.hint) from error


def _folder_facts(folder: Path) -> Facts:
    context = parameters = None
    with contextlib.suppress(OSError, ValueError):
        config: JsonDict = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        text = config.get("text_config")
        value = (text if isinstance(text, dict) else config).get("max_position_embeddings")
        context = value if isinstance(value, int) else None
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        parameters = sum(map(_safetensors_parameters, folder.glob("*.safetensors"))) or None
    return Facts(context, parameters)


def _safetensors_parameters(file: Path) -> int:
    """Elements of all tensors of a file: its header is a length and that many bytes of JSON."""
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        if length > 1 << 28:
            raise ValueError("not a safetensors file")
        header = json.loads(handle.read(length))
    total = 0
    for name, entry in header.items():
        if name != "__metadata__":
            count = 1
            for size in entry["shape"]:
                count *= int(size)
            total += count
    return total


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0]
