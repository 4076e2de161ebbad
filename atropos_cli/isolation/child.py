"""The program of a worker process, `python -P child.py MODULE ARGUMENTS`, and the messages that it exchanges.

It calls main(channel, *arguments) of the module (a name, or the path of a file), which answers what comes through
the channel until that gives None. Messages are JSON objects, each after its length in 4 bytes, big-endian: nothing is
pickled, so neither side runs what the other sends. An answer carries the "id" of its request. Shut-in processes
(`inside`) exchange the same messages, some with open files.

It imports nothing of the package, so that a worker may do without, and little of anything, for forks are cheap then.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from _thread import allocate_lock
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

Message = dict[str, Any]
HEADER = struct.Struct(">I")
LARGEST = 1 << 30
_PR_SET_PDEATHSIG = 1
_written = json.JSONEncoder(separators=(",", ":"), default=str).encode
_read = json.JSONDecoder().decode


class NotAMessage(ValueError):
    """The other side sent something else."""


def packed(message: Message) -> bytes:
    """A message with its length. What JSON does not know is written as text."""
    body = _written(message).encode("utf-8", "replace")
    return HEADER.pack(len(body)) + body


def size_of(header: bytes | bytearray, largest: int = LARGEST) -> int:
    """The length of the message that follows. Raises NotAMessage."""
    (size,) = HEADER.unpack(header)
    if size > largest:
        raise NotAMessage(f"{size} bytes")
    return int(size)


def unpacked(body: bytes) -> Message:
    """A message from its bytes. Raises NotAMessage."""
    try:
        message = _read(body.decode())
    except (ValueError, RecursionError) as error:
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


def take_messages(buffer: bytearray) -> Iterator[Message]:
    """Take the whole messages from the beginning of what has been read so far. Raises NotAMessage."""
    while len(buffer) >= HEADER.size:
        end = HEADER.size + size_of(buffer[: HEADER.size])
        if len(buffer) < end:
            return
        message = unpacked(bytes(buffer[HEADER.size : end]))
        del buffer[:end]
        yield message


def send_with_files(connection: socket.socket, message: Message, files: Sequence[int]) -> None:
    """Send a message and open files. Raises OSError."""
    data = packed(message)
    sent = socket.send_fds(connection, [data], files)
    if sent < len(data):
        connection.sendall(data[sent:])


def receive_with_files(connection: socket.socket, most: int) -> tuple[Message, list[int]] | None:
    """The next message and the files that came with it, None when the other side has closed. Raises NotAMessage."""
    header, files, _, _ = socket.recv_fds(connection, HEADER.size, most)
    header += _exactly(connection, HEADER.size - len(header)) if header else b""
    if len(header) < HEADER.size:
        return None
    body = _exactly(connection, size_of(header))
    return unpacked(body), files


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data


class WorkerChannel:
    """One end of the socket between two processes, such as a worker and its parent. May be used from any thread."""

    def __init__(self, connection: socket.socket, largest: int = LARGEST) -> None:
        self._connection = connection
        self._incoming = connection.makefile("rb")
        self._sending = allocate_lock()
        self._largest = largest

    def receive(self) -> Message | None:
        """The next message, None when the other side is gone. Raises NotAMessage."""
        return receive(self._incoming, self._largest)

    def send(self, message: Message) -> bool:
        """Send a message; False when the other side is gone. Raises NotAMessage when it is too large."""
        data = packed(message)
        if len(data) > self._largest:
            raise NotAMessage(f"{len(data)} bytes")
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError:
            return False
        return True


def take_standard_input() -> socket.socket:
    """The socket that this process has as its standard input, which is empty from now on."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return connection


def load_module(name: str, path: str) -> Any:
    """The module in a file."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    connection = take_standard_input()
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not light
    sys.path[:] = [place for place in sys.path if place != here]  # where Python does not know -P
    if name.endswith(".py"):
        module = load_module("worker", name)
    else:
        import importlib

        module = importlib.import_module(name)
    module.main(WorkerChannel(connection), *arguments)


if __name__ == "__main__":
    main()
