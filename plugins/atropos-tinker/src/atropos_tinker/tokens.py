"""Of the model there is here: its tokenizer, its end tokens and its sizes. The weights stay on the server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.models import find_model

_UNLIMITED = 1 << 30


@dataclass(frozen=True, slots=True)
class Words:
    """ends: tokens that end a reply. context: most tokens of prompt and reply. vocabulary: ids are below it."""

    tokenizer: Any
    ends: tuple[int, ...]
    context: int
    vocabulary: int
    location: str
    """Folder or hub name that transformers takes."""


def load_words(model: str, context: int | None) -> Words:
    """From the model's folder, or from the hub. context: what the server says. Raises ConfigError."""
    from transformers import AutoTokenizer

    source = find_model(model)
    if source.kind == "gguf":
        raise ConfigError(
            f"--model {model} is a GGUF file, which servers of the Tinker API do not train",
            hint="give the folder or the hub name of the model that the server has",
        )
    folder = source.kind == "folder"
    location = str(Path(source.location).resolve()) if folder else source.location
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, local_files_only=folder, trust_remote_code=False)
    except Exception as error:  # the loader raises whatever a damaged or unknown tokenizer makes it raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"model {source.label!r} has no usable tokenizer: {first}",
            hint="--model is a folder with tokenizer.json, or a name on the hub; --base-model the server's name for it",
        ) from error
    if tokenizer.chat_template is None and source.template is not None:
        tokenizer.chat_template = source.template
    own, generation = (_read(location, name, local=folder) for name in ("config.json", "generation_config.json"))
    ends = {tokenizer.eos_token_id, *_ids(own), *_ids(generation)} - {None}
    if not ends:
        raise ConfigError(
            f"the tokenizer of {model!r} has no end token: completions would never end",
            hint="set eos_token in its tokenizer_config.json",
        )
    text: Any = own.get("text_config") or own
    room = context or text.get("max_position_embeddings") or _UNLIMITED
    size = max(int(text.get("vocab_size") or 0), len(tokenizer))
    return Words(tokenizer, tuple(sorted(ends)), int(room), size, location)


def _ids(config: dict[str, Any]) -> set[int]:
    found = config.get("eos_token_id")
    return set(found) if isinstance(found, list) else {found} if isinstance(found, int) else set()


def _read(location: str, name: str, *, local: bool) -> dict[str, Any]:
    """A JSON file of the model; empty where there is none."""
    try:
        if not local:
            from huggingface_hub import hf_hub_download

            path = Path(hf_hub_download(location, name))
        else:
            path = Path(location) / name
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
