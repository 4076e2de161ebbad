"""TensorBoard's event files, as far as scalars and texts go: records of protobuf messages, each with two checksums.

The libraries that write them import torch where it is installed, which costs a run of small tasks more than the run.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from pathlib import Path

_count = itertools.count()
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_STRING = 7  # DT_STRING of a tensor
_SESSION_START = 1


class EventFile:
    """Appends events to a new file of a folder. Every call leaves whole records on the disk."""

    def __init__(self, folder: Path, *, purge_from: int | None = None) -> None:
        """purge_from: what earlier files of the folder hold from this step on is no longer shown."""
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        stamp = f"{time.time_ns() // 10**9:010d}.{socket.gethostname()}.{os.getpid()}.{next(_count)}"
        self._file = (folder / f"events.out.tfevents.{stamp}").open("xb", buffering=0)
        self._file.write(_record(_event(_field(3, b"brain.Event:2"))))
        if purge_from is not None:
            self._file.write(_record(_event(_field(7, _field(1, _SESSION_START)), step=purge_from)))

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """One event with all values."""
        parts = [
            _field(1, _field(1, name.encode("utf-8", "replace")) + _single(2, value)) for name, value in values.items()
        ]
        self._file.write(_record(_event(_field(5, b"".join(parts)), step=step)))

    def text(self, step: int, name: str, markdown: str) -> None:
        """A text, which TensorBoard shows as Markdown."""
        tag = _field(1, f"{name}/text_summary".encode("utf-8", "replace"))
        shape = _field(2, _field(2, _field(1, 1)))
        tensor = _field(8, _field(1, _STRING) + shape + _field(8, markdown.encode("utf-8", "replace")))
        plugin = _field(9, _field(1, _field(1, b"text")))
        self._file.write(_record(_event(_field(5, _field(1, tag + tensor + plugin)), step=step)))

    def close(self) -> None:
        self._file.close()


def _event(what: bytes, step: int = 0) -> bytes:
    return _key(1, _FIXED64) + struct.pack("<d", time.time()) + _field(2, step) + what


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _key(number, _VARINT) + _varint(value)
    return _key(number, _BYTES) + _varint(len(value)) + value


def _single(number: int, value: float) -> bytes:
    """A number of 32 bits; what does not fit is infinite there."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _key(number, _FIXED32) + packed


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, masked as TFRecord files have it."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table() -> tuple[int, ...]:
    entries = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        entries.append(number)
    return tuple(entries)


_CRC = _table()


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
