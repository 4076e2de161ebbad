"""The program of a worker process, `python -P child.py MODULE ARGUMENTS`, and the messages that it exchanges.

It calls main(channel, *arguments) of the module (a name, or the path of a file), which answers what comes through
the channel until that gives None. Messages are JSON objects, each after its length in 4 bytes, big-endian: nothing is
pickled, so neither side runs what the other sends. An answer carries the "id" of its request.

It imports nothing of the package, so that a worker may do without.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import socket
import struct
import sys
import threading
from typing import Any, BinaryIO

Message = dict[str, Any]
HEADER = struct.Struct(">I")
LARGEST = 1 << 30
_PR_SET_PDEATHSIG = 1
_written = json.JSONEncoder(separators=(",", ":"), default=str).encode
_read = json.JSONDecoder().decode


class NotAMessage(Exception):
    """The other side sent something else."""


def packed(message: Message) -> bytes:
    """A message with its length. What JSON does not know is written as text."""
    body = _written(message).encode("utf-8", "replace")
    return HEADER.pack(len(body)) + body


def size_of(header: bytes, largest: int = LARGEST) -> int:
    """The length of the message that follows. Raises NotAMessage."""
    (size,) = HEADER.unpack(header)
    if size > largest:
        raise NotAMessage(f"{size} bytes")
    return int(size)


def unpacked(body: bytes) -> Message:
    """A message from its bytes. Raises NotAMessage."""
    try:
        message = _read(body.decode())
    except ValueError as error:
        raise NotAMessage(repr(body[:80])) from error
    if not isinstance(message, dict):
        raise NotAMessage(repr(body[:80]))
    return message


def receive(stream: BinaryIO, largest: int = LARGEST) -> Message | None:
    """The next message, None when the other side has closed. Blocks. Raises NotAMessage."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    size = size_of(header, largest)
    body = stream.read(size)
    return unpacked(body) if len(body) == size else None


class WorkerChannel:
    """The worker's end of the socket to its parent. May be used from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = connection.makefile("rb")
        self._sending = threading.Lock()

    def receive(self) -> Message | None:
        """The next message, None when the parent is gone."""
        return receive(self._incoming)

    def send(self, message: Message) -> None:
        """Send a message; nothing happens when the parent is gone."""
        try:
            with self._sending:
                self._connection.sendall(packed(message))
        except OSError:
            return


def die_with_the_parent(number: int, parent: int) -> bool:
    """Linux: get a signal when the thread that started this process ends. False when the parent is gone already."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def main() -> None:
    """Take the socket from standard input, load the module and leave the rest to it."""
    parent, name, *arguments = sys.argv[1:]
    if not die_with_the_parent(signal.SIGKILL, int(parent)):
        os._exit(0)
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("worker", name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(name)
    module.main(WorkerChannel(connection), *arguments)


if __name__ == "__main__":
    main()
