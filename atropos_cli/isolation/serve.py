"""The process that a worker is: run by path inside the isolation, `python -P -s serve.py SETTINGS`.

It loads one module by path, which has `load(settings)` and `answer(request)`, then answers requests from a
socket: length-prefixed JSON both ways. A request with "fork" is answered in a process of its own with limits,
many at a time, so that nothing of one is left for the next and a late one is killed alone. In it no text is
evaluated that could do more than be read (`guard`), so its verdict is never one that a text wrote. Others are
answered here, one after the other: for the module's own work, never for text that nobody trusts.

It imports nothing of the rest of the package, which cannot be seen from inside.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

HEADER = struct.Struct(">I")
MOST_BYTES = 64 << 20
MOST_REPLY = 4 << 20
FILES = tuple(str(Path(__file__).with_name(f"{name}.py")) for name in ("serve", "confine", "guard"))
"""What must be seen inside to run this file."""


def _beside(name: str) -> Any:
    """A file beside this one as a module; the package that both belong to cannot be seen from inside."""
    spec = importlib.util.spec_from_file_location(f"worker_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass
class Child:
    """A request that is being answered in a process of its own."""

    number: int
    pid: int
    deadline: float
    reply: bytearray = field(default_factory=bytearray)


class Server:
    """Serves one socket until its other end closes."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.socket = socket.socket(fileno=settings["socket"])
        self.settings = settings
        self.module: Any = None
        self.confine, self.guard = _beside("confine"), _beside("guard")
        self.buffer = bytearray()
        self.waiting: deque[dict[str, Any]] = deque()
        self.children: dict[int, Child] = {}
        self.kept: set[str] = set()
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)

    def prepare(self) -> None:
        """Give up what is not needed, then load the module. Whatever goes wrong is told to the other end."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            self._shut_in()
        except OSError as error:
            self._send({"error": "refused", "message": str(error)})
            os._exit(1)
        os.environ["HOME"] = os.environ["TMPDIR"] = self.settings["work"]
        os.chdir(self.settings["work"])
        sys.path[:0] = self.settings["show"]
        try:
            spec = importlib.util.spec_from_file_location("worker_module", self.settings["module"])
            assert spec is not None
            assert spec.loader is not None
            self.module = importlib.util.module_from_spec(spec)
            sys.modules["worker_module"] = self.module
            spec.loader.exec_module(self.module)
            self.module.load(self.settings["settings"])
        except BaseException as error:  # noqa: BLE001 - the other end tells the user
            self._send({"error": type(error).__name__, "message": str(error)[:2000]})
            os._exit(1)
        self.kept = set(self._files())
        gc.collect()
        gc.freeze()
        self._send({"ready": True})

    def _shut_in(self) -> None:
        """Raises OSError where code in here would have what it must not have."""
        settings = self.settings
        if settings["become"] is not None:
            self.confine.become(settings["become"], [settings["work"], "/dev/shm"])  # noqa: S108 - the folder inside
        if settings["readable"] is not None:
            readable, writable = [*settings["readable"], "/proc", "/dev"], [settings["work"], "/dev/null"]
            apart = self.confine.apart_from_others(readable, writable, settings["own_user"])
            if not apart and not settings["unprotected"]:
                raise OSError("without Landlock and user namespaces, code in it could read this user's other processes")
        self.confine.give_up_privileges()

    def serve(self) -> NoReturn:
        """Answer for ever."""
        while True:
            left = [child.deadline - time.monotonic() for child in self.children.values()]
            for fd, _ in self.poll.poll(max(0.0, min(left)) * 1000 + 1 if left else None):
                if fd == self.socket.fileno():
                    self._read()
                elif fd in self.children:
                    self._hear(fd)
            now = time.monotonic()
            for fd in [fd for fd, child in self.children.items() if child.deadline <= now]:
                self._finish(fd, {"error": "timeout"})
            while self.waiting and len(self.children) < self.settings["most"]:
                self._begin(self.waiting.popleft())

    def _read(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            for child in self.children.values():
                self._kill(child.pid)
            os._exit(0)
        self.buffer += data
        while len(self.buffer) >= HEADER.size:
            (size,) = HEADER.unpack_from(self.buffer)
            if len(self.buffer) < HEADER.size + size:
                break
            request: dict[str, Any] = json.loads(self.buffer[HEADER.size : HEADER.size + size])
            del self.buffer[: HEADER.size + size]
            if request["fork"]:
                self.waiting.append(request)
            else:
                self._send({"number": request["number"], **self._answer(request)})

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"value": self.module.answer(request["request"])}
        except MemoryError:
            return {"error": "memory"}
        except BaseException as error:  # noqa: BLE001 - an error is an answer
            return {"error": "failed", "type": type(error).__name__, "message": str(error)[:1000]}

    def _begin(self, request: dict[str, Any]) -> None:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self._child(request, writer)
        os.close(writer)
        self.children[reader] = Child(request["number"], pid, time.monotonic() + request["seconds"])
        self.poll.register(reader, select.POLLIN)

    def _child(self, request: dict[str, Any], writer: int) -> NoReturn:
        try:
            os.setsid()
            self.socket.close()
            for reader in self.children:
                os.close(reader)
            self._limit(request["seconds"])
            self.confine.forbid_calls()
            if not request["trusted"]:
                self.guard.watch(self.settings["work"])
            answer = self._answer(request)
            if self.guard.reasons:
                answer["refused"] = self.guard.reasons[0]
            reply = json.dumps(answer).encode()
            view = memoryview(reply)
            while view:
                view = view[os.write(writer, view) :]
        finally:
            os._exit(0)

    def _limit(self, seconds: float) -> None:
        with open("/proc/self/statm") as file:  # noqa: PTH123 - before anything else of a child
            used = int(file.read().split()[0]) * resource.getpagesize()
        memory, cpu = used + (self.settings["memory_mb"] << 20), int(seconds) + 2
        limits = {
            resource.RLIMIT_AS: memory,
            resource.RLIMIT_CPU: cpu,
            resource.RLIMIT_FSIZE: 1 << 20,
            resource.RLIMIT_NOFILE: 64,
            resource.RLIMIT_NPROC: 0,
        }
        for kind, value in limits.items():
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))

    def _hear(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        child = self.children[fd]
        child.reply += data
        if len(child.reply) > MOST_REPLY:
            self._finish(fd, {"error": "failed", "type": "ValueError", "message": "the answer is too long"})
        elif not data:
            try:
                answer = json.loads(child.reply)
            except ValueError:
                answer = {"error": "crashed"}
            self._finish(fd, answer)

    def _finish(self, fd: int, answer: dict[str, Any]) -> None:
        child = self.children.pop(fd)
        self.poll.unregister(fd)
        os.close(fd)
        status = self._kill(child.pid)
        if not self.children:
            self._clear()
        if answer.get("error") == "crashed":
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGXCPU:
                answer = {"error": "timeout"}
            answer["message"] = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self._send({"number": child.number, **answer})

    def _files(self) -> list[str]:
        """What lies where requests can write. Where /dev/shm is the machine's, they cannot write there."""
        folders = [self.settings["work"], *(["/dev/shm"] if self.settings["readable"] is None else [])]  # noqa: S108
        return [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]  # noqa: PTH118, PTH208

    def _clear(self) -> None:
        """Remove what requests left; rm copes with trees too deep for Python and with folders made unreadable."""
        if left := [path for path in self._files() if path not in self.kept]:
            for command in (["chmod", "-R", "u+rwx", "--"], ["rm", "-rf", "--"]):
                subprocess.run([*command, *left], stderr=subprocess.DEVNULL, check=False)  # noqa: S603

    def _kill(self, pid: int) -> int:
        """End a child and all that it left behind; its exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        known = {child.pid for child in self.children.values()}
        while strays := [other for other in _own_children() if other not in known]:
            for other in strays:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(other, 0)
        return status

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        try:
            self.socket.sendall(HEADER.pack(len(data)) + data)
        except OSError:
            os._exit(0)


def _own_children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123 - called after every child
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def main() -> NoReturn:
    """Prepare and serve. What the module prints goes nowhere."""
    settings = json.loads(sys.argv[1])
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(null, fd)
    server = Server(settings)
    server.prepare()
    os.dup2(null, 2)
    server.serve()


if __name__ == "__main__":
    main()
