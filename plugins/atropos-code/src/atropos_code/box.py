"""One box of the sandbox as its host sees it: start it, run one program in it at a time, end it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from atropos_cli.sdk.isolation import bubblewrap_command, readable_paths
from atropos_code.errors import SandboxError
from atropos_code.inside import watch, zygote

Mode = Literal["namespaces", "bubblewrap", "process"]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to shut programs in.

    own_user: programs have a user id that nobody else has. changes_user: the zygote gives itself that id, for
    root whose Python nobody else may read. unprotected: also where nothing keeps programs from what we can reach.
    """

    mode: Mode
    own_user: bool = False
    changes_user: bool = False
    unprotected: bool = False


PACKAGE = Path(zygote.__file__).parent.parent
START_S = 20.0
GRACE_S = 5.0
"""Seconds after a run's own deadline until its box is taken for lost."""


def clean_environment(hash_seed: int) -> dict[str, str]:
    """All the environment variables that a program sees."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": str(hash_seed),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class BoxLost(Exception):
    """The box's own process ended or does not answer."""


class Box:
    """A zygote process. Not safe for several threads at once. `lost` boxes must be closed and replaced."""

    def __init__(self, way: Way, *, hash_seed: int = 0, uid: int | None = None) -> None:
        mode = way.mode
        self.mode: Mode = mode
        self.hash_seed = hash_seed
        self.single_use = mode == "bubblewrap"
        self.lost = False
        self.features: tuple[str, ...] = ()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings = {
            "socket": theirs.fileno(),
            "mode": mode,
            "uid": uid,
            "become": way.changes_user,
            "unprotected": way.unprotected,
            "paths": readable_paths(),
        }
        # In its namespaces the zygote becomes that user for each run; elsewhere it is that user from the start.
        start_as: dict[str, Any] = {}
        if uid is not None and mode != "namespaces" and not way.changes_user:
            start_as = {"user": uid, "group": uid, "extra_groups": []}
        # -I would ignore PYTHONHASHSEED; with a clean environment -P -s isolates as much.
        command = [sys.executable, "-P", "-s", "-X", "utf8", "-c", zygote.BOOT]
        command += [str(PACKAGE.parent), json.dumps(settings)]
        if mode == "bubblewrap":
            command = [*bubblewrap(way.changes_user), *command]
        self.uid = uid
        self._log = os.memfd_create("log")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program and arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                env=clean_environment(hash_seed),
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                **start_as,
            )
        except OSError:
            ours.close()
            os.close(self._log)
            raise
        finally:
            theirs.close()
        self._socket = ours
        self._ready = False

    @property
    def pid(self) -> int:
        """The process id of the zygote (of bwrap in mode "bubblewrap")."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Block until the box can run programs. Raises SandboxError with the reason when it never will."""
        if self._ready:
            return
        try:
            answer = self._receive(START_S)
        except BoxLost:
            self._end()
            words = os.pread(self._log, 4000, 0).decode("utf-8", "replace").strip().rpartition("\n")[2]
            self.close()
            reason = words or f"exit status {self._process.returncode}"
            raise SandboxError(f"a sandbox of level {self.mode!r} did not start: {reason}") from None
        if "ready" not in answer:
            self.close()
            raise SandboxError(f"a sandbox of level {self.mode!r} cannot be made here: {answer.get('error')}")
        self.features = tuple(answer["features"])
        self._ready = True

    def send(self, kind: str, limits: Mapping[str, Any], fds: Mapping[str, int], folder: str | None) -> None:
        """Start one run. Raises BoxLost."""
        request = {"kind": kind, "limits": dict(limits), "fds": list(fds), "folder": folder}
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(fds.values()))
        except OSError as error:
            self.lost = True
            raise BoxLost(str(error)) from None
        if self.single_use:
            self.lost = True

    def stop(self) -> None:
        """End the run in progress; its answer still comes."""
        with contextlib.suppress(OSError):
            self._socket.send(zygote.STOP)

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """How the run ended. Raises BoxLost."""
        answer = self._receive(timeout_s + GRACE_S)
        if "error" in answer:
            raise SandboxError(f"the sandbox could not start a program: {answer['error']}")
        return answer

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(65536)
            answer: dict[str, Any] = json.loads(data)
        except (OSError, ValueError) as error:
            self.lost = True
            raise BoxLost(f"{type(error).__name__}: {error}") from None
        return answer

    def close(self) -> None:
        """End the box and everything in it. Safe to call again."""
        self._end()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def _end(self) -> None:
        """At the end of its socket the zygote ends what it started, then itself; killed only when it does not.

        bwrap killed while it starts would leave a half-made sandbox that waits for ever, so it is given
        the time to get there. A zygote in namespaces of its own can be killed at any time: the kernel ends
        the run with it.
        """
        self.lost = True
        self._socket.close()
        if self.mode != "namespaces":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S if self._ready else START_S)
        if self._process.poll() is None:
            proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
            try:
                below = watch.tree(proc, self._process.pid) if self.mode == "bubblewrap" else []
            finally:
                os.close(proc)
            for pid in (*below, self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait()


def bubblewrap(changes_user: bool) -> list[str]:
    """The command that starts a process with its own namespaces and a read-only view. Raises SandboxError."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bwrap is not installed", hint="apt-get install bubblewrap")
    # Our zygote ends when it sees its socket end. It is process 1 inside: one of bwrap's own would have the
    # program's user id, and its memory would be open to the program.
    return bubblewrap_command(program, [*readable_paths(), str(PACKAGE)], ["--as-pid-1"], changes_user=changes_user)


@contextlib.contextmanager
def memory_files(contents: Mapping[str, bytes]) -> Iterator[dict[str, int]]:
    """Unnamed files in memory, one for each name; closed at the end."""
    fds: dict[str, int] = {}
    try:
        for name, data in contents.items():
            fd = fds[name] = os.memfd_create(name)
            os.fchmod(fd, 0o666)
            view_of = memoryview(data)
            while view_of:
                view_of = view_of[os.write(fd, view_of) :]
            os.lseek(fd, 0, os.SEEK_SET)
        yield fds
    finally:
        for fd in fds.values():
            os.close(fd)


def contents(fd: int, most: int) -> tuple[bytes, int]:
    """The first `most` bytes of a file, and its size."""
    return os.pread(fd, most, 0), os.fstat(fd).st_size


@contextlib.contextmanager
def private_folder(box: Box) -> Iterator[str | None]:
    """A folder for one run where the box has none of its own; gone afterwards, whatever is in it."""
    if box.mode != "process":
        yield None
        return
    folder = tempfile.mkdtemp(prefix="atropos-code-")
    if box.uid is not None:
        os.chown(folder, box.uid, box.uid)
    try:
        yield folder
    finally:
        # rm copes with trees too deep for Python and with folders made unreadable.
        commands: Sequence[list[str]] = (["rm", "-rf", "--", folder], ["chmod", "-R", "u+rwx", "--", folder])
        for command in (commands[0], commands[1], commands[0]):
            if Path(folder).exists():
                subprocess.run(command, stderr=subprocess.DEVNULL, check=False)  # noqa: S603
