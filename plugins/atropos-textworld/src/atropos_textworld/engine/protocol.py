"""What a worker process and its parent say to each other: JSON objects, each after its length.

    request   {"id": 7, "op": "step", ...}                            parent to worker
    answer    {"id": 7, "value": {...}} or {"id": 7, "error": {"type": "GameError", "message": "..."}}
    notice    {"id": 7, "phase": "compile"}                           the deadline starts anew

Lengths are 4 bytes, big-endian. Nothing is pickled, so neither side runs what the other sends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

LENGTH = struct.Struct(">I")
LARGEST = 64 * 1024 * 1024

Frame = dict[str, Any]


class ProtocolError(Exception):
    """The other side sent what is not a frame."""


def encode(frame: Frame) -> bytes:
    """A frame with its length."""
    body = json.dumps(frame, separators=(",", ":")).encode()
    return LENGTH.pack(len(body)) + body


def _size(header: bytes) -> int:
    (size,) = LENGTH.unpack(header)
    if size > LARGEST:
        raise ProtocolError(f"a frame of {size} bytes")
    return int(size)


def _decode(body: bytes) -> Frame:
    try:
        frame = json.loads(body)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {body[:80]!r}") from error
    if not isinstance(frame, dict):
        raise ProtocolError(f"not an object: {body[:80]!r}")
    return frame


def receive(connection: socket.socket) -> Frame | None:
    """The next frame, or None when the other side has closed. Blocks."""
    header = _exactly(connection, LENGTH.size)
    body = _exactly(connection, _size(header)) if header else b""
    return _decode(body) if body else None


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)


async def receive_async(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame, or None when the other side has closed."""
    try:
        return _decode(await reader.readexactly(_size(await reader.readexactly(LENGTH.size))))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
