"""The process that a worker is, inside the isolation.

It loads one module by path, which has `load(settings)` and `answer(request)`, then answers requests from a
socket (see `isolation.child`). A request with "fork" is answered in a process of its own with limits,
many at a time, so that nothing of one is left for the next and a late one is killed alone. In it no text is
evaluated that could do more than be read (`guard`), so its verdict is never one that a text wrote. Others are
answered here, one after the other: for the module's own work, never for untrusted text.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NoReturn

from atropos_cli.isolation import child
from atropos_cli.isolation.inside import confine, guard, limits, linux, watch

MOST_BYTES = 64 << 20
MOST_REPLY = 4 << 20
BOOT = """\
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:0] = settings["folders"]
from atropos_cli.isolation.inside import serve
serve.main(settings)
"""


@dataclass
class Fork:
    """A request that is being answered in a process of its own."""

    number: int
    pid: int
    deadline: float
    reply: bytearray = field(default_factory=bytearray)


class Server:
    """Serves one socket until its other end closes."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.socket = child.take_standard_input()
        self.settings = settings
        self.module: Any = None
        self.buffer = bytearray()
        self.waiting: deque[dict[str, Any]] = deque()
        self.forks: dict[int, Fork] = {}
        self.kept: set[str] = set()
        self.poll = select.poll()
        self.poll.register(self.socket, select.POLLIN)

    def prepare(self) -> None:
        """Give up what is not needed, then load the module. The other end hears whatever goes wrong."""
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
            self.module = child.load_module("worker_module", self.settings["module"])
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
        if settings["become"]:
            linux.become(settings["uid"], [settings["work"], "/dev/shm"])  # noqa: S108 - the folder inside
        if settings["level"] == "process":
            readable, writable = [*settings["paths"], "/proc", "/dev"], [settings["work"], "/dev/null"]
            apart = confine.apart_from_others(readable, writable, settings["uid"] is not None)
            if not apart and not settings["unprotected"]:
                raise OSError("without Landlock and user namespaces, code in it could read this user's other processes")
        confine.give_up_privileges()

    def serve(self) -> NoReturn:
        """Answer for ever."""
        while True:
            left = [fork.deadline - time.monotonic() for fork in self.forks.values()]
            for fd, _ in self.poll.poll(max(0.0, min(left)) * 1000 + 1 if left else None):
                if fd == self.socket.fileno():
                    self._read()
                elif fd in self.forks:
                    self._hear(fd)
            now = time.monotonic()
            for fd in [fd for fd, fork in self.forks.items() if fork.deadline <= now]:
                self._finish(fd, {"error": "timeout"})
            while self.waiting and len(self.forks) < self.settings["most"]:
                self._begin(self.waiting.popleft())

    def _read(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            for fork in self.forks.values():
                self._kill(fork.pid)
            os._exit(0)
        self.buffer += data
        for request in child.take_messages(self.buffer):
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
        self.forks[reader] = Fork(request["number"], pid, time.monotonic() + request["seconds"])
        self.poll.register(reader, select.POLLIN)

    def _child(self, request: dict[str, Any], writer: int) -> NoReturn:
        try:
            os.setsid()
            self.socket.close()
            for reader in self.forks:
                os.close(reader)
            limits.apply(
                memory=limits.address_space() + (self.settings["memory_mb"] << 20),
                cpu_s=int(request["seconds"]) + 2,
                file=1 << 20,
                open_files=64,
                processes=0,
            )
            confine.forbid_calls()
            if not request["trusted"]:
                guard.watch(self.settings["work"])
            answer = self._answer(request)
            if guard.reasons:
                answer["refused"] = guard.reasons[0]
            reply = json.dumps(answer).encode()
            view = memoryview(reply)
            while view:
                view = view[os.write(writer, view) :]
        finally:
            os._exit(0)

    def _hear(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        fork = self.forks[fd]
        fork.reply += data
        if len(fork.reply) > MOST_REPLY:
            self._finish(fd, {"error": "failed", "type": "ValueError", "message": "the answer is too long"})
        elif not data:
            try:
                answer = json.loads(fork.reply)
            except ValueError:
                answer = {"error": "crashed"}
            self._finish(fd, answer)

    def _finish(self, fd: int, answer: dict[str, Any]) -> None:
        fork = self.forks.pop(fd)
        self.poll.unregister(fd)
        os.close(fd)
        status = self._kill(fork.pid)
        if not self.forks:
            self._clear()
        if answer.get("error") == "crashed":
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGXCPU:
                answer = {"error": "timeout"}
            answer["message"] = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self._send({"number": fork.number, **answer})

    def _files(self) -> list[str]:
        """What lies where requests can write. Where /dev/shm is the machine's, they cannot write there."""
        folders = [self.settings["work"], *(["/dev/shm"] if self.settings["level"] != "process" else [])]  # noqa: S108
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
        known = {fork.pid for fork in self.forks.values()}
        watch.kill_strays(known)
        return status

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self.socket.sendall(child.packed(message))
        except OSError:
            os._exit(0)


def main(settings: dict[str, Any]) -> NoReturn:
    """Prepare and serve. What the module prints goes nowhere."""
    del sys.path[: len(settings["folders"])]
    server = Server(settings)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    server.prepare()
    os.dup2(null, 2)
    server.serve()
