"""Records of W&B's binary log: blocks of 32 KiB with chunks of records, of which one may go on in the next block."""

from __future__ import annotations

import importlib
import struct
import zlib
from pathlib import Path

_BLOCK = 32768
_HEADER = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def wandb_records(path: Path) -> list[bytes]:
    """All whole records; an AssertionError for a file that is damaged or ends in the middle of one."""
    data = path.read_bytes()
    assert data[:4] == b":W&B"
    found: list[bytes] = []
    parts: list[bytes] = []
    position = _HEADER
    while position < len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:
            position += left  # no room for a chunk's head
            continue
        crc, length, kind = struct.unpack_from("<IHB", data, position)
        chunk = data[position + _HEADER : position + _HEADER + length]
        assert len(chunk) == length
        assert crc == zlib.crc32(chunk, zlib.crc32(bytes([kind])))
        assert bool(parts) == (kind in (_MIDDLE, _LAST))
        parts.append(chunk)
        if kind in (_FULL, _LAST):
            found.append(b"".join(parts))
            parts = []
        position += _HEADER + length
    assert not parts
    return found


def wandb_ended(path: Path) -> bool:
    """Is the run's exit in the log? W&B's service writes it last."""
    parse = importlib.import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    return any(parse(record).HasField("exit") for record in wandb_records(path))
