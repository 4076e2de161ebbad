"""Small files that tell a trainer how to read what was written: LLaMA-Factory, Axolotl, TRL, verl.

    check("axolotl", "preference")                    before the work: does it read rows of this shape?
    write("axolotl", output, "preference")            the file beside the output

The keys are those that the loaders of these programs read: `llamafactory.data.parser` (0.9.5),
`axolotl.utils.schemas.datasets` and its prompt strategies (0.19), `trl.scripts.utils` (1.16) and
`verl.utils.dataset` (0.9.1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.errors import DataError, RunExists, UsageError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.lock import file_lock
from atropos_cli.io.writers_out import DataOutput

RECIPES: tuple[str, ...] = ("llama-factory", "axolotl", "trl", "verl")
PREFERRED = {"llama-factory": "sharegpt"}
"""The --format of a recipe's rows, where none is named."""

Keys = Mapping[str, Any]
_ROLES = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
    "observation_tag": "tool",
    "function_tag": "function_call",
}
_SHAREGPT = {"formatting": "sharegpt", "columns": {"messages": "conversations"}}
_LLAMA_FACTORY: dict[str, Keys] = {
    "sharegpt": _SHAREGPT,
    "messages": {"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": _ROLES},
    "text": {"formatting": "alpaca", "columns": {"prompt": "text"}},
    "preference-sharegpt": {
        **_SHAREGPT,
        "ranking": True,
        "columns": {"messages": "conversations", "chosen": "chosen", "rejected": "rejected"},
    },
    "preference-text": {
        "formatting": "alpaca",
        "ranking": True,
        "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"},
    },
    "kto-sharegpt": {**_SHAREGPT, "columns": {"messages": "conversations", "kto_tag": "label"}},
    "kto-text": {
        "formatting": "alpaca",
        "columns": {"prompt": "prompt", "response": "completion", "kto_tag": "label"},
    },
}
_CHAT: Keys = {"type": "chat_template", "roles_to_train": ["assistant"], "train_on_eos": "turn"}
_FROM_VALUE: Keys = {
    "field_messages": "conversations",
    "message_property_mappings": {"role": "from", "content": "value"},
    "message_field_training": "weight",
}
_AXOLOTL: dict[str, Keys] = {
    "messages": {**_CHAT, "field_messages": "messages", "message_field_training": "weight"},
    "sharegpt": {**_CHAT, **_FROM_VALUE},
    "text": {"type": "completion", "field": "text"},
    "tokens": {"type": ""},
    "preference": {
        "type": "chat_template.default",
        "field_messages": "prompt",
    },
    "preference-text": {
        "type": {
            "field_prompt": "prompt",
            "field_chosen": "chosen",
            "field_rejected": "rejected",
            "prompt_format": "{prompt}",
            "chosen_format": "{chosen}",
            "rejected_format": "{rejected}",
        }
    },
    "kto-text": {
        "type": {
            "field_prompt": "prompt",
            "field_completion": "completion",
            "field_label": "label",
            "prompt_format": "{prompt}",
            "completion_format": "{completion}",
        }
    },
}
_AXOLOTL |= {f"{name}-rendered": _AXOLOTL[f"{name}-text"] for name in ("preference", "kto")}
_TRL: dict[str, Sequence[str]] = {
    "messages": ("messages", "tools"),
    "prompt-completion": ("prompt", "completion", "tools"),
    "prompt-completion-text": ("prompt", "completion"),
    "text": ("text",),
    "preference": ("prompt", "chosen", "rejected", "tools"),
    "preference-text": ("prompt", "chosen", "rejected"),
    "kto": ("prompt", "completion", "label", "tools"),
    "kto-text": ("prompt", "completion", "label"),
    "prompt-answer": ("prompt", "answer"),
}
_TRL |= {f"{name}-rendered": _TRL[f"{name}-text"] for name in ("preference", "kto")}
_VERL: dict[str, Keys] = {
    "verl": {"prompt_key": "prompt", "reward_fn_key": "data_source", "return_raw_chat": True},
    "messages": {"messages_key": "messages", "tools_key": "tools"},
}
_READ: dict[str, Mapping[str, Any]] = {"llama-factory": _LLAMA_FACTORY, "axolotl": _AXOLOTL, "trl": _TRL, "verl": _VERL}
_ENDINGS = {"llama-factory": (".jsonl", ".json", ".parquet"), "verl": (".parquet",)}
_INFO = "dataset_info.json"
_OURS = (b"# The part of an Axolotl", b"# trl ", b"# Overrides for ")
_REPLACES = "--overwrite replaces it, -o names another"


def check(recipe: str, shape: str, target: str, *, shards: bool) -> None:
    """Raises UsageError when that program does not read such rows, or not such files."""
    known = _READ[recipe]
    if shape not in known:
        raise UsageError(f"{recipe} does not read rows of the shape {shape}", hint=_other_shape(recipe, shape))
    endings = _ENDINGS.get(recipe, (".jsonl", ".json", ".jsonl.gz", ".jsonl.zst", ".parquet"))
    if not target.endswith(endings):
        raise UsageError(f"{recipe} does not read {target}", hint=f"end it with {' or '.join(endings)}")
    if shards and recipe == "llama-factory":
        raise UsageError("llama-factory reads one file by name, not shards of one", hint="drop --shard-size")


def check_place(recipe: str, path: Path, *, overwrite: bool, validation: bool) -> None:
    """Raises RunExists where a file of somebody's own, or their entry for another file, would be replaced."""
    if overwrite:
        return
    beside = _beside(recipe, path)
    if recipe != "llama-factory":
        if beside.is_file() and not beside.read_bytes().startswith(_OURS):
            raise RunExists(f"{beside} is already there, and is not one of ours", hint=_REPLACES)
        return
    try:
        info = _read_info(beside)
    except DataError:  # said once the rows are there: it is left alone
        return
    for split in ("-train", "-validation") if validation else ("",):
        name, file = _stem(path) + split.replace("-", "_"), f"{_stem(path)}{split}{path.name[len(_stem(path)) :]}"
        entry = info.get(name)
        if isinstance(entry, dict) and entry.get("file_name", file) != file:
            raise RunExists(f"{beside} has an entry {name!r} for {entry['file_name']}", hint=_REPLACES)


def _beside(recipe: str, path: Path) -> Path:
    return path.with_name(_INFO if recipe == "llama-factory" else f"{_stem(path) or path.name}.{recipe}.yaml")


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _other_shape(recipe: str, shape: str) -> str:
    if recipe == "llama-factory" and shape.endswith("-rendered"):
        return "it renders its rows itself: leave --text out, or --tokenizer and --chat-template"
    if recipe == "llama-factory" and shape in ("preference", "kto"):
        return "add --format sharegpt"
    if recipe in ("axolotl", "trl") and shape.endswith("-sharegpt"):
        return "add --format messages, or --text"
    if shape == "kto":
        return "add --text"
    if recipe == "verl":
        return "prompt-gen makes rows for verl; of sft-gen it reads --format messages"
    return f"it reads {', '.join(_READ[recipe])}"


def write(recipe: str, output: DataOutput, shape: str) -> Path:
    """Write the recipe beside the output; returns its path. Raises DataError, and loses nothing that stands there."""
    assert output.path is not None
    if recipe == "llama-factory":
        return _dataset_info(output, shape)
    made = {"axolotl": _axolotl, "trl": _trl, "verl": _verl}[recipe](output, shape)
    path = _beside(recipe, output.path)
    atomic_write(path, made.encode("utf-8", "surrogateescape"))
    return path


def _of(output: DataOutput, split: str) -> list[str]:
    pairs = zip(output.files, output.splits, strict=True)
    return [str(path.resolve()) for path, found in pairs if found == split]


def _yaml(comments: Sequence[str], value: Mapping[str, Any]) -> str:
    import yaml

    text = "".join(f"# {line}\n" for line in comments)
    return text + yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=1000)


def _axolotl(output: DataOutput, shape: str) -> str:
    ds_type = "parquet" if output.kind == "parquet" else "json"
    keys = dict(_AXOLOTL[shape])
    if "tools" in output.columns:
        keys["field_tools"] = "tools"
    made: dict[str, Any] = {}
    if shape.startswith("preference"):
        made["rl"] = "dpo"
    elif shape.startswith("kto"):
        made |= {"rl": "kto", "remove_unused_columns": False}  # Axolotl asks for it
    made["datasets"] = [{"path": path, "ds_type": ds_type, **keys} for path in _of(output, "train")]
    tests = _of(output, "validation")
    if tests:
        made["test_datasets"] = [{"path": path, "ds_type": ds_type, "split": "train", **keys} for path in tests]
    return _yaml(["The part of an Axolotl configuration that reads these rows."], made)


def _trl(output: DataOutput, shape: str) -> str:
    loader = "parquet" if output.kind == "parquet" else "json"
    columns = [name for name in _TRL[shape] if name in output.columns]
    made = {"datasets": [{"path": loader, "data_files": _of(output, "train"), "split": "train", "columns": columns}]}
    kind = "grpo" if shape == "prompt-answer" else shape.partition("-")[0]
    command = {"preference": "dpo"}.get(kind, kind if kind in ("kto", "grpo") else "sft")
    return _yaml([f"trl {command} --config THIS_FILE --model_name_or_path MODEL --output_dir FOLDER"], made)


def _verl(output: DataOutput, shape: str) -> str:
    train, tests = _of(output, "train"), _of(output, "validation")
    keys = {key: value for key, value in _VERL[shape].items() if key != "tools_key" or "tools" in output.columns}
    made = {"data": {"train_files": train, "val_files": tests or train, **keys}}
    if shape == "messages":
        told = ["Overrides for verl's SFT trainer."]
    else:
        told = [
            "Overrides for python -m verl.trainer.main_ppo. For a data_source that verl knows no reward for, name a",
            "custom_reward_function with compute_score(data_source, solution_str, ground_truth, extra_info).",
        ]
    return _yaml(told, made)


def _dataset_info(output: DataOutput, shape: str) -> Path:
    """LLaMA-Factory's index of a folder: our entries are put in, those of others stay as they are."""
    assert output.path is not None
    path = _beside("llama-factory", output.path)
    with file_lock(path.parent):  # two commands at once do not lose each other's entries
        info = _read_info(path)
        for file, split in zip(output.files, output.splits, strict=True):
            keys = {
                key: dict(value) if isinstance(value, Mapping) else value
                for key, value in _LLAMA_FACTORY[shape].items()
            }
            if "tools" in output.columns:
                if shape == "messages":
                    raise DataError(
                        "LLaMA-Factory reads tool calls as ShareGPT only; dataset_info.json is not changed",
                        hint="make the rows again with --format sharegpt",
                    )
                keys["columns"]["tools"] = "tools"
            name = _stem(output.path)
            info[f"{name}_{split}" if output.spec.validation else name] = {"file_name": file.name, **keys}
        atomic_write(path, json.dumps(info, indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    return path


def _read_info(path: Path) -> dict[str, Any]:
    try:
        info = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON, so nothing was put in: {error}", hint="repair it, or move it") from error
    if not isinstance(info, dict):
        raise DataError(f"{path} holds no entries by name, so nothing was put in", hint="repair it, or move it")
    return info
