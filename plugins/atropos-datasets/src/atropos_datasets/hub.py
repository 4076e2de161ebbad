"""Data sets of the hub, and folders written by the `datasets` library, as rows; its errors in plain words."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk import DataError, JsonDict
from atropos_datasets.rows import plain_row

_BATCH = 1000
_CONFIGS = re.compile(r"(?:available configs|[Aa]vailable)\s*:\s*\[([^\]]*)\]", re.DOTALL)


class HubRows:
    """Rows of a `datasets.Dataset`, which stay on disk."""

    def __init__(self, name: str, dataset: Any) -> None:
        self.name = name
        self.fields: Sequence[str] | None = list(dataset.column_names)
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> JsonDict:
        return plain_row(self._dataset[index])

    def where(self, index: int) -> str:
        return f"{self.name}, row {index}"

    def scan(self, fields: Sequence[str]) -> Iterator[JsonDict]:
        known = [name for name in fields if name in self._dataset.column_names]
        for batch in self._dataset.select_columns(known).iter(batch_size=_BATCH):
            for values in zip(*batch.values(), strict=True):
                yield plain_row(dict(zip(batch, values, strict=True)))

    def close(self) -> None:
        return None


def open_hub(name: str, config: str | None, split: str) -> HubRows:
    """One split of a hub data set, from the cache where it is there. Raises DataError."""
    datasets = _library(f"hub data set {name!r}")
    try:
        dataset = datasets.load_dataset(name, config, split=split)
    except Exception as error:
        raise explain(error, name, config, split) from error
    return HubRows(f"{name} ({split})", dataset)


def fetch_hub(name: str, config: str | None) -> str:
    """Download every split of a hub data set; says what is here now. Raises DataError."""
    datasets = _library(f"hub data set {name!r}")
    try:
        found = datasets.load_dataset(name, config)
    except Exception as error:
        raise explain(error, name, config, "") from error
    splits = ", ".join(f"{split} {len(rows)}" for split, rows in found.items())
    return f"{name}{f', config {config}' if config else ''}: {splits} rows in {datasets.config.HF_DATASETS_CACHE}"


def open_saved(path: str, split: str) -> HubRows:
    """A folder written by `save_to_disk`: a data set, or one split of several. Raises DataError."""
    datasets = _library(f"{path}: a folder")
    try:
        found = datasets.load_from_disk(str(Path(path).expanduser()))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: a folder that was not written by save_to_disk: {error}", hint="--path FILE, or --hub NAME"
        ) from error
    if isinstance(found, dict):
        if split not in found:
            raise DataError(f"{path} has no split {split!r}", hint=f"--data-split {' | '.join(found)}")
        found = found[split]
    return HubRows(f"{path} ({split})", found)


def explain(error: Exception, name: str, config: str | None, split: str) -> DataError:
    """What went wrong with a hub data set, and what to do. Never holds a token."""
    text = _without_tokens(str(error).strip()) or type(error).__name__
    what = f"data set {name!r}" + (f", config {config!r}" if config else "")
    offline = os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "ON", "YES", "TRUE"} or (
        os.environ.get("HF_DATASETS_OFFLINE", "0").upper() in {"1", "ON", "YES", "TRUE"}
    )
    configs = _CONFIGS.search(text)
    if configs and not offline:
        names = re.findall(r"['\"]([^'\"]+)['\"]", configs[1])
        problem = "has no such config" if config else "needs a config"
        return DataError(f"{what} {problem}; there are: {', '.join(names)}", hint=f"--config-name {names[0]}")
    if "gated" in text or re.search(r"\b(?:401|403)\b", text):
        return DataError(
            f"{what} is gated or private, and access was refused",
            hint=f"ask for access at https://huggingface.co/datasets/{name}, then set HF_TOKEN",
        )
    if offline:
        cached = _cached(name)
        fetch = f"atropos prefetch --dataset {name}" + (f":{config}" if config else "")
        return DataError(
            f"{what} is not in the cache, and offline mode is on (HF_HUB_OFFLINE); "
            f"cached configs: {', '.join(cached) or 'none'}",
            hint=f"--config-name {cached[0]}"
            if cached and config not in cached
            else f"where there is a network: {fetch}",
        )
    if split and "split" in text.lower() and re.search(rf"['\"]{re.escape(split)}['\"]", text):
        found = re.search(r"\[([^\]]*)\]", text)
        names = re.findall(r"['\"]([^'\"]+)['\"]", found[1]) if found else []
        listed = f"; there are: {', '.join(names)}" if names else ""
        return DataError(f"{what} has no split {split!r}{listed}", hint=f"--data-split {names[0] if names else 'NAME'}")
    if type(error).__name__ == "DatasetNotFoundError":
        return DataError(
            f"{what} does not exist, or is private",
            hint=f"look at https://huggingface.co/datasets/{name}; a private one needs HF_TOKEN",
        )
    return DataError(
        f"{what} cannot be loaded: {type(error).__name__}: {text[:600]}", hint="or use a file: --path FILE"
    )


def _without_tokens(text: str) -> str:
    """An error's text without anything that looks like an access token."""
    token = os.environ.get("HF_TOKEN")
    return re.sub(r"\bhf_\w+|(?<=Bearer )\S+", "***", text.replace(token, "***") if token else text)


def _cached(name: str) -> list[str]:
    """The configs of a data set in the library's cache."""
    datasets = _library("the cache")
    folder = Path(datasets.config.HF_DATASETS_CACHE) / name.replace("/", "___")
    return sorted(item.name for item in folder.iterdir() if item.is_dir()) if folder.is_dir() else []


def _library(what: str) -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise DataError(
            f"{what} needs the datasets library",
            hint="pip install 'atropos-datasets[hub]', or use a local file: --path FILE",
        ) from error
    return datasets
