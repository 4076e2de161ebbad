"""Read the header of a GGUF file: its metadata and the number of its parameters, without the weights.

The layout is that of the GGUF specification, versions 2 and 3, little-endian: magic, version, number
of tensors, number of key/value pairs, the pairs, the tensor descriptions. Arrays are skipped: a
vocabulary of 150,000 strings is walked over, not kept. Sizes in the file are not trusted.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_ENTRIES = 1 << 20
_MAX_TEXT = 1 << 24

Scalar = str | int | float | bool


class NotGGUF(ValueError):
    """The file is not a GGUF file that can be read."""


@dataclass(frozen=True)
class Header:
    """metadata: the scalar entries. parameters: elements of all tensors together."""

    metadata: dict[str, Scalar] = field(default_factory=dict)
    parameters: int = 0


def read_header(path: Path) -> Header:
    """The header of a GGUF file. Raises NotGGUF when it is none or cut short, OSError when it cannot be opened."""
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            raise NotGGUF("it does not begin with the letters GGUF")
        (version,) = _unpack(file, "I")
        if version not in (2, 3):
            raise NotGGUF(f"GGUF version {version} is not known (2 and 3 are)")
        tensors, pairs = _unpack(file, "QQ")
        if tensors > _MAX_ENTRIES or pairs > _MAX_ENTRIES:
            raise NotGGUF("its header is damaged")
        metadata: dict[str, Scalar] = {}
        for _ in range(pairs):
            key = _text(file)
            (kind,) = _unpack(file, "I")
            if kind == _ARRAY:
                _skip_array(file)
            else:
                metadata[key] = _scalar(file, kind)
        return Header(metadata, sum(_elements(file) for _ in range(tensors)))


def _unpack(file: BinaryIO, format: str) -> tuple[int, ...]:
    size = struct.calcsize("<" + format)
    data = file.read(size)
    if len(data) != size:
        raise NotGGUF("it ends inside the header")
    return struct.unpack("<" + format, data)


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    if length > _MAX_TEXT:
        raise NotGGUF("its header is damaged")
    data = file.read(length)
    if len(data) != length:
        raise NotGGUF("it ends inside the header")
    return data.decode("utf-8", "replace")


def _scalar(file: BinaryIO, kind: int) -> Scalar:
    if kind == _STRING:
        return _text(file)
    if kind not in _SCALARS:
        raise NotGGUF(f"its header holds a value of unknown type {kind}")
    return _unpack(file, _SCALARS[kind])[0]


def _skip_array(file: BinaryIO) -> None:
    kind, count = _unpack(file, "IQ")
    if count > _MAX_TEXT:
        raise NotGGUF("its header is damaged")
    if kind == _STRING:
        for _ in range(count):
            (length,) = _unpack(file, "Q")
            if length > _MAX_TEXT:
                raise NotGGUF("its header is damaged")
            file.seek(length, 1)
    elif kind in _SCALARS:
        file.seek(count * struct.calcsize("<" + _SCALARS[kind]), 1)
    else:
        raise NotGGUF("its header holds an array of arrays")


def _elements(file: BinaryIO) -> int:
    _text(file)
    (dimensions,) = _unpack(file, "I")
    if dimensions > 8:
        raise NotGGUF("its header is damaged")
    count = 1
    for size in _unpack(file, "Q" * dimensions):
        count *= size
    _unpack(file, "IQ")
    return count
