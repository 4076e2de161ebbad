"""GGUF files: their header, and a dequantised copy of one as a folder that transformers can load.

The copy lies in `$XDG_CACHE_HOME/atropos/gguf/<key>/`, the same folder that the `local` backend keeps, so that
generating and training convert a file once between them. The key is the hash of the file's content and of what
converts it. The header is read with nothing but the standard library: sizes in it are not trusted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from atropos_cli.sdk import TrainerError

from .machine import free_disk, human

FORMAT = 1
_WRITING = ".writing-"
_DIGITS_FIRST = frozenset({"smollm"})
"""Values of `tokenizer.ggml.pre` that mean: split off each digit, then as GPT-2 does."""

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MANY, _LONG = 1 << 20, 1 << 24


class NotGGUF(ValueError):
    """The file is not a GGUF file that can be read."""


@dataclass(frozen=True)
class Header:
    """metadata: the scalar entries. parameters: elements of all tensors together."""

    metadata: dict[str, str | int | float | bool] = field(default_factory=dict)
    parameters: int = 0


def read_header(path: Path) -> Header:
    """Raises NotGGUF when the file is none or cut short, OSError when it cannot be opened."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise NotGGUF("it does not begin with the letters GGUF")
        reader = _Reader(file)
        if reader.one("I") not in (2, 3):
            raise NotGGUF("its GGUF version is not known (2 and 3 are)")
        tensors, pairs = reader.count("Q", _MANY), reader.count("Q", _MANY)
        metadata: dict[str, str | int | float | bool] = {}
        for _ in range(pairs):
            key = reader.text()
            kind = reader.one("I")
            if kind == _ARRAY:
                reader.skip_array()
            else:
                metadata[key] = reader.scalar(kind)
        return Header(metadata, sum(reader.elements() for _ in range(tensors)))


class _Reader:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def bytes(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise NotGGUF("it ends inside the header")
        return data

    def one(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self.bytes(struct.calcsize("<" + kind)))[0]

    def count(self, kind: str, most: int) -> int:
        value = int(self.one(kind))
        if value > most:
            raise NotGGUF("its header is damaged")
        return value

    def text(self) -> str:
        return self.bytes(self.count("Q", _LONG)).decode("utf-8", "replace")

    def scalar(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind not in _SCALARS:
            raise NotGGUF(f"its header holds a value of unknown type {kind}")
        return self.one(_SCALARS[kind])

    def skip_array(self) -> None:
        kind, count = self.one("I"), self.count("Q", _LONG)
        if kind == _STRING:
            for _ in range(count):
                self._file.seek(self.count("Q", _LONG), 1)
        elif kind in _SCALARS:
            self._file.seek(count * struct.calcsize("<" + _SCALARS[kind]), 1)
        else:
            raise NotGGUF("its header holds an array of arrays")

    def elements(self) -> int:
        self.text()
        total = 1
        for _ in range(self.count("I", 8)):
            total *= int(self.one("Q"))
        self.bytes(12)  # the tensor's type and offset
        return total


def cache_root() -> Path:
    """Where converted models are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "atropos" / "gguf"


def cache_key(path: Path) -> str:
    """Names the copy of this file."""
    digest = hashlib.sha256(f"{FORMAT} {version('transformers')}\n".encode())
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()[:32]


def converted(path: Path) -> Path:
    """The folder with the dequantised fp32 weights and the tokenizer, made now if need be. Raises TrainerError."""
    try:
        header = read_header(path)
    except (NotGGUF, OSError) as error:
        raise TrainerError(
            f"cannot read {path.name!r} as a GGUF file: {error}",
            hint="give a .gguf file, or the folder that holds config.json and the weights",
        ) from error
    folder = cache_root() / cache_key(path)
    if not folder.is_dir():
        _convert(path, header, folder)
    return folder


def _convert(path: Path, header: Header, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        version("gguf")
    except PackageNotFoundError as error:
        raise TrainerError(
            f"reading the GGUF file {path.name!r} needs the package 'gguf'", hint="pip install 'atropos-trl[train]'"
        ) from error
    options: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), **options)
        model = AutoModelForCausalLM.from_pretrained(str(path.parent), dtype=torch.float32, **options)
    except Exception as error:  # the loader raises whatever the file makes it raise
        raise TrainerError(
            f"GGUF file {path.name!r} cannot be loaded: {type(error).__name__}: {str(error).splitlines()[:1]}",
            hint="transformers reads only some architectures from GGUF; give the original model folder instead",
        ) from error
    if header.metadata.get("tokenizer.ggml.pre") in _DIGITS_FIRST:
        _split_digits(tokenizer)
    if header.metadata.get("tokenizer.ggml.add_bos_token") is False:
        tokenizer.add_bos_token = False  # transformers 5 overlooks it
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the weights are dequantised
    model.hf_quantizer = None
    _store(folder, model, tokenizer, needed=header.parameters * 4)


def _split_digits(tokenizer: Any) -> None:
    """Split as the vocabulary was made: transformers' GGUF reader leaves the digits' own step out."""
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _store(folder: Path, model: Any, tokenizer: Any, *, needed: int) -> None:
    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    if free_disk(root) < 2 * needed:
        raise TrainerError(
            f"{root} has no room for the dequantised model: {human(2 * needed)} are needed, "
            f"{human(free_disk(root))} are free",
            hint="make room, or point XDG_CACHE_HOME to another disk",
        )
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
