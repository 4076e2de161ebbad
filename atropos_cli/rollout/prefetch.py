"""Bring models and data to this machine before a job on nodes without a network.

Everything goes where its library looks for it later (HF_HUB_CACHE, HF_DATASETS_CACHE; `cache_dir` sets both),
so that the same command works there with --offline.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.errors import AtroposError, DataError, UsageError
from atropos_cli.network import get

SKIPPED = ("original/*", "*.pth", "onnx/*", "*.onnx", "openvino/*", "*.msgpack", "*.h5", "*.ot", "*.tflite", "*.gguf")
"""Files of model repositories that neither transformers nor SGLang nor vLLM loads."""
OLD_WEIGHTS = ("*.bin", "*.pt")
"""Skipped as well where the repository has safetensors."""


_PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What is here now. kind: model, dataset or environment. size: bytes on this disk, None where not counted."""

    kind: str
    name: str
    place: str
    size: int | None = None


def fetch_model(name: str, revision: str | None = None) -> Fetched:
    """A model with its tokenizer, as transformers and the engines load it. A local folder is only checked."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise DataError(f"{name} holds no config.json, so it is not a model")
        return Fetched("model", name, str(folder.absolute()), size_of(folder))
    hub = _hub_library()
    with explained("model", name):
        files = hub.HfApi().list_repo_files(name, revision=revision)
        skipped = [*SKIPPED, *(OLD_WEIGHTS if any(file.endswith(".safetensors") for file in files) else ())]
        place = hub.snapshot_download(name, revision=revision, ignore_patterns=skipped)
    return Fetched("model", name, str(place), size_of(Path(place)))


def fetch_dataset(name: str, config: str | None = None) -> Fetched:
    """A data set of the hub: one config of it, or all; a local file or folder is only checked."""
    if Path(name).expanduser().exists():
        return Fetched("dataset", name, str(Path(name).expanduser().absolute()))
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise DataError(f"data set {name!r} needs the datasets library", hint="pip install datasets") from error
    with explained("data set", name):
        configs = [config] if config else datasets.get_dataset_config_names(name)
        for one in configs:
            datasets.load_dataset(name, one)
    place = Path(datasets.config.HF_DATASETS_CACHE) / name.replace("/", "___")
    shown = f" ({', '.join(str(one) for one in configs)})" if configs != ["default"] else ""
    return Fetched("dataset", name + shown, str(place), size_of(place))


def fetch_environment(name: str, environment: Any) -> Iterator[Fetched]:
    """What an environment needs, brought by itself (Environment.prefetch)."""
    with explained("environment", name):
        for text in environment.prefetch():
            yield Fetched("environment", name, str(text))


def refuse_offline() -> None:
    """Raise UsageError when the hub is out of bounds."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        raise UsageError(
            "nothing can be fetched in offline mode", hint="drop --offline, ATROPOS_OFFLINE or HF_HUB_OFFLINE"
        )


def check_reachable() -> None:
    """Raise DataError when the hub does not answer at all: its library would try again for half a minute."""
    where = _endpoint()
    try:
        get(where, timeout=_PATIENCE)
    except OSError as error:
        raise DataError(
            f"{where} cannot be reached: {error}",
            hint="run it where there is a network; HF_ENDPOINT names a mirror",
        ) from error


def is_local(name: str) -> bool:
    """A path and no name of the hub."""
    return Path(name).expanduser().exists()


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


@contextmanager
def explained(kind: str, name: str) -> Iterator[None]:
    """Turn the hub's errors into ours. No token is ever shown."""
    try:
        yield
    except AtroposError:
        raise
    except Exception as error:
        raise _explain(error, kind, name) from error


def _explain(error: Exception, kind: str, name: str) -> DataError:
    names = {base.__name__ for base in type(error).__mro__}
    token = os.environ.get("HF_TOKEN")
    text = " ".join((str(error).replace(token, "***") if token else str(error)).split())[:300]
    text = re.sub(r"\bhf_\w+|(?<=Bearer )\S+", "***", text)
    where = _endpoint()
    if "GatedRepoError" in names or re.search(r"\b40[13]\b", text):
        return DataError(
            f"{kind} {name!r}: access was refused", hint=f"ask for access at {where}/{name}, then set HF_TOKEN"
        )
    if {"RepositoryNotFoundError", "DatasetNotFoundError"} & names or "404" in text:
        return DataError(f"{kind} {name!r} is not on {where}", hint="check the spelling: OWNER/NAME")
    if "No space left" in text:
        return DataError(f"{kind} {name!r}: the disk is full", hint="another folder: ATROPOS_CACHE_DIR=DIR")
    if {"ConnectionError", "TransportError", "NetworkError", "TimeoutException"} & names:
        return DataError(
            f"{kind} {name!r}: {where} cannot be reached: {type(error).__name__}: {text}",
            hint="run it where there is a network; HF_ENDPOINT names a mirror",
        )
    return DataError(f"{kind} {name!r}: {type(error).__name__}: {text}")


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder, links followed."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0


def _hub_library() -> Any:
    try:
        import huggingface_hub
    except ModuleNotFoundError as error:
        raise DataError("fetching models needs huggingface_hub", hint="pip install huggingface_hub") from error
    return huggingface_hub
