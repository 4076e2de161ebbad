"""Load a GGUF file through transformers, and keep the dequantised model for the next time.

Reading a GGUF file takes long (about 19 CPU seconds for 135 million parameters, most of it parsing),
loading the same weights from safetensors one or two. A copy is therefore kept in
`$XDG_CACHE_HOME/atropos/gguf/<key>/`, float32, so that it holds exactly the file's values. The key is
the hash of the file's content and of what converts it. Copies are written beside and renamed, so
that a half-written one is never seen; the least recently used go when all together exceed 4 GiB.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.models import ModelFile, loading_model, user_cache
from atropos_local.gguf_header import Header, NotGGUF, read_header

if TYPE_CHECKING:
    import torch

FORMAT = 1
LIMIT_BYTES = 4 << 30
_STALE_SECONDS = 24 * 3600.0
_WRITING = ".writing-"
_FLOAT32_BYTES = 4

_DIGITS_FIRST = frozenset({"smollm"})
"""Values of `tokenizer.ggml.pre` that mean: split off each digit, then as GPT-2 does."""

log = logging.getLogger(__name__)


class GGUFFile(ModelFile):
    """A GGUF file whose header is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header = gguf_header(path)
        context = self.header.metadata.get(f"{self.header.metadata.get('general.architecture')}.context_length")
        self.context = int(context) if isinstance(context, int) else None
        self.parameters = self.header.parameters

    def tokenizer(self) -> Any:
        with _loading(self.path):
            return _tokenizer(self.path, self.header)

    def folder(self) -> Path:
        """The folder of the kept copy."""
        folder = cache_root() / _key(self.path)
        if not folder.is_dir():
            model, tokenizer = _convert(self.path, self.header)
            try:
                _store(folder, model, tokenizer)
            except (OSError, RuntimeError) as error:
                raise ConfigError(
                    f"the dequantised copy of {self.path.name!r} cannot be kept: {error}",
                    hint="make room, or point XDG_CACHE_HOME to another disk",
                ) from error
        return folder


def gguf_header(path: Path) -> Header:
    """What a GGUF file says of itself, without its weights. Raises ConfigError for one that cannot be read."""
    try:
        return read_header(path)
    except (NotGGUF, OSError) as error:
        raise ConfigError(
            f"cannot read {path.name!r} as a GGUF file: {error}",
            hint="give a .gguf file, or the folder that holds config.json and the weights",
        ) from error


def load(path: Path, header: Header, *, dtype: torch.dtype, use_cache: bool) -> tuple[Any, Any]:
    """Model and tokenizer of a GGUF file, from the cache if it is there. Raises ConfigError."""
    if not use_cache or header.parameters * _FLOAT32_BYTES > LIMIT_BYTES:
        return _convert(path, header)
    folder = cache_root() / _key(path)
    if folder.is_dir():
        try:
            return _load_folder(folder, dtype)
        except Exception as error:  # noqa: BLE001 - a damaged copy is thrown away, whatever it raises
            log.warning("the cached copy of %s cannot be read (%s); making it again", path.name, type(error).__name__)
            shutil.rmtree(folder, ignore_errors=True)
    log.info("converting %s; the result is kept for the next time", path.name)
    model, tokenizer = _convert(path, header)
    try:
        _store(folder, model, tokenizer)
    except (OSError, RuntimeError) as error:
        log.warning("the converted model is not cached: %s", error)
    return model, tokenizer


def cache_root() -> Path:
    """Where converted models are kept."""
    return user_cache() / "gguf"


def _key(path: Path) -> str:
    digest = hashlib.sha256(f"{FORMAT} {version('transformers')}\n".encode())
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()[:32]


@contextlib.contextmanager
def _loading(path: Path) -> Iterator[None]:
    """What goes wrong while transformers reads the file is a ConfigError that names it."""
    for package in ("gguf", "accelerate"):
        try:
            version(package)
        except PackageNotFoundError as error:
            raise ConfigError(
                f"reading the GGUF file {path.name!r} needs the package {package!r}",
                hint="pip install gguf accelerate",
            ) from error
    try:
        with loading_model():
            yield
    except Exception as error:  # the loader raises whatever the file makes it raise
        first_line = (str(error).strip() or "no reason given").split("\n", 1)[0]
        raise ConfigError(
            f"GGUF file {path.name!r} cannot be loaded: {type(error).__name__}: {first_line}",
            hint="transformers reads only some architectures from GGUF; give the original model folder instead",
        ) from error


def _tokenizer(path: Path, header: Header) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
    if header.metadata.get("tokenizer.ggml.pre") in _DIGITS_FIRST:
        split_digits(tokenizer)
    if header.metadata.get("tokenizer.ggml.add_bos_token") is False:
        tokenizer.add_bos_token = False  # transformers 5.0 overlooks it
    return tokenizer


def _convert(path: Path, header: Header) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM

    options = {"gguf_file": path.name, "local_files_only": True}
    with _loading(path):
        tokenizer = _tokenizer(path, header)
        model = AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=torch.float32, **options)
    # The weights are dequantised: a copy saved with these marks would be taken for a quantised model.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    return model, tokenizer


def split_digits(tokenizer: Any) -> None:
    """Split as the vocabulary was made: transformers' GGUF reader leaves the digits' own step out.

    It shows where spaces stand before a number: "  1" is two tokens, not three.
    """
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _load_folder(folder: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with loading_model():
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype, local_files_only=True)
    with contextlib.suppress(OSError):
        os.utime(folder)
    return model, tokenizer


def _store(folder: Path, model: Any, tokenizer: Any) -> None:
    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    needed = sum(parameter.numel() * _FLOAT32_BYTES for parameter in model.parameters())
    if shutil.disk_usage(root).free < 2 * needed:
        raise OSError(f"less than {2 * needed >> 20} MiB are free in {root}")
    _evict(root, LIMIT_BYTES - needed)
    writing = Path(tempfile.mkdtemp(prefix=_WRITING, dir=root))
    try:
        model.save_pretrained(str(writing))
        tokenizer.save_pretrained(str(writing))
        writing.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster, and its copy is the same
            raise
    finally:
        shutil.rmtree(writing, ignore_errors=True)


def _evict(root: Path, allowed: int) -> None:
    """Remove leavings of crashed writers, then the least recently used copies until `allowed` bytes are left."""
    entries = []
    for folder in root.iterdir():
        with contextlib.suppress(OSError):
            used = folder.stat().st_mtime
            if folder.name.startswith(_WRITING):
                if time.time() - used > _STALE_SECONDS:
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            entries.append((used, folder, sum(file.stat().st_size for file in folder.iterdir())))
    total = sum(size for _, _, size in entries)
    for _, folder, size in sorted(entries):
        if total <= allowed:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= size
