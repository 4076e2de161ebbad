"""The process that waits inside the sandbox and forks one Python program at a time.

It never reads a program itself: payloads come as file descriptors that only the forked child reads,
so nothing of one run is in the memory of the next. Per run:

    zygote -> init (process 1 of a new pid namespace; mounts a private /tmp) -> the program

The program runs at the end of BOOT, at the top level of the interpreter, so that exit statuses,
tracebacks, atexit handlers and threads are those of `python program.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

from atropos_cli.isolation.child import receive_with_files, send_with_files, take_standard_input
from atropos_cli.isolation.inside import child, confine, landlock, linux, seccomp, view, watch

NAMESPACE_FLAGS = linux.NEWPID | linux.NEWNS | linux.NEWIPC
FDS = 8

BOOT = """\
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:0] = settings["folders"]
from atropos_cli.isolation.inside import child, zygote
program = zygote.main(settings)
if not program.needs_finalization:
    child.run_and_leave(program)
exec(program.code, program.namespace)
"""


class Zygote:
    """Serves the requests of one socket, one after the other."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.mode: str = settings["level"]
        self.uid: int | None = settings["uid"]
        self.become: bool = settings["become"]
        self.landlock: bool = settings["landlock"]
        self.unprotected: bool = settings["unprotected"]
        self.paths: list[str] = settings["paths"]
        self.features: list[str] = []
        self.roles = importlib.import_module(settings["roles"]) if settings["roles"] else None
        self.socket = take_standard_input()
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def prepare(self) -> None:
        """Build what all runs share. Raises OSError where the machine does not allow it."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        with contextlib.suppress(OSError):
            # Programs are the first to go when the machine runs out of memory, and cannot change that.
            linux.write("/proc/self/oom_score_adj", "500")
        if self.become and self.uid is not None:
            linux.become(self.uid, [view.WORK, "/dev/shm"])  # noqa: S108 - the folder inside
        if self.mode == "namespaces":
            self._enter_namespaces()
            view.enter(self.paths)
        elif self.mode == "process":
            self._stay_apart()
        if linux.supported():
            self.features.append("seccomp")
        # Not before: it makes our own /proc/self/uid_map somebody else's file.
        linux.set_dumpable(False)
        # So that forks do not copy pages only because objects are counted.
        import gc

        gc.collect()
        gc.freeze()

    def _stay_apart(self) -> None:
        """See that programs cannot read the memory and the environment of the user's other processes."""
        if self.landlock:
            self.features.append("landlock")
        elif self.uid is None and not self.unprotected:
            if error := confine.own_namespace():
                raise OSError(
                    "without Landlock and user namespaces, programs could read this user's other processes"
                    f" ({error.strerror})"
                )
            self.features.append("own user namespace")

    def _enter_namespaces(self) -> None:
        flags = linux.NEWUSER | linux.NEWNS | linux.NEWNET | linux.NEWIPC | linux.NEWUTS
        uid, gid = os.geteuid(), os.getegid()
        if self.uid is None:
            linux.map_ourselves(flags, 1000, 1000)
            return
        # Only a process outside may map a user other than ourselves: a helper that stays there.
        ready, go = os.pipe()
        helper = os.fork()
        if helper == 0:
            status = 1
            try:
                os.read(ready, 1)
                for kind in ("uid", "gid"):
                    linux.write(
                        f"/proc/{os.getppid()}/{kind}_map", f"0 {uid if kind == 'uid' else gid} 1\n1000 {self.uid} 1"
                    )
                status = 0
            finally:
                os._exit(status)
        linux.unshare(flags)
        os.write(go, b"x")
        if os.waitpid(helper, 0)[1] != 0:
            raise OSError(f"user {self.uid} cannot be mapped")
        os.close(ready)
        os.close(go)

    def serve(self) -> child.Program:
        """Answer requests for ever. Returns only in a program's own process."""
        while True:
            received = receive_with_files(self.socket, FDS)
            if received is None:
                os._exit(0)
            request, fds = received
            if "stop" in request:
                # It crossed our last answer.
                continue
            program = self._run(request, fds)
            if program is not None:
                return program
            for fd in fds:
                os.close(fd)

    def _run(self, request: dict[str, Any], fds: list[int]) -> child.Program | None:
        report, report_end = os.pipe()
        began = time.monotonic()
        try:
            pid = linux.clone(NAMESPACE_FLAGS) if self.mode == "namespaces" else os.fork()
        except OSError as error:
            os.close(report)
            os.close(report_end)
            self._answer({"error": str(error)})
            return None
        if pid == 0:
            return self._init(request, dict(zip(request["fds"], fds, strict=True)), report_end)
        os.close(report_end)
        ended = self._wait(pid, report, began, request)
        if self.mode != "namespaces":
            watch.kill_tree(self.proc, pid)
        os.kill(pid, signal.SIGKILL)
        usage = os.wait4(pid, 0)[2]
        words = b""
        while chunk := os.read(report, 4096):
            words += chunk
        os.close(report)
        answer: dict[str, Any] = json.loads(words) if words else {}
        answer |= {
            "ended": ended,
            "wall_s": time.monotonic() - began,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "memory_kb": usage.ru_maxrss,
        }
        self._answer(answer)
        return None

    def _wait(self, pid: int, report: int, began: float, request: dict[str, Any]) -> str:
        """Until the program ended, its time is over, it grew too large, or the host says stop."""
        poll = select.poll()
        poll.register(report, select.POLLIN)
        poll.register(self.socket, select.POLLIN)
        deadline = began + request["limits"]["timeout_s"]
        pause = watch.FIRST_LOOK_S
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return "timeout"
            for fd, _ in poll.poll(max(1.0, min(left, pause) * 1000)):
                if fd == report:
                    return "exit"
                if receive_with_files(self.socket, FDS) is None:
                    if self.mode != "namespaces":
                        watch.kill_tree(self.proc, pid)
                    os.kill(pid, signal.SIGKILL)
                    os._exit(0)
                return "stopped"
            exceeded = watch.exceeded(self.proc, pid, request["limits"])
            if exceeded:
                return exceeded
            pause = watch.INTERVAL_S

    def _init(self, request: dict[str, Any], fds: dict[str, int], report: int) -> child.Program | None:
        """In the run's first process: start the program's process, wait for it, report how it ended."""
        try:
            linux.die_with_parent()
            self.socket.close()
            os.close(self.proc)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.setsid()
            if self.mode == "namespaces":
                view.private_folders(request["limits"]["tmp_mb"])
            else:
                linux.become_subreaper()
            phase, phase_end = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(phase)
                os.close(report)
                return child.start(request, fds, phase_end, self._confine, self.roles)
            os.close(phase_end)
            self._reap(pid, phase, report)
        finally:
            if os.getpid() == 1 or not child.started():
                os._exit(1)

    def _reap(self, pid: int, phase: int, report: int) -> NoReturn:
        while True:
            ended, status = os.waitpid(-1, 0)
            if ended == pid:
                break
        os.set_blocking(phase, False)
        try:
            words = os.read(phase, 4000).decode("utf-8", "replace")
        except BlockingIOError:
            words = ""
        code = os.waitstatus_to_exitcode(status)
        os.write(report, json.dumps({"status": code, "phase": words}).encode())
        if self.mode != "namespaces":
            # The zygote ends what is left among our descendants, then us.
            signal.pause()
        os._exit(0)

    def _confine(self, request: dict[str, Any]) -> None:
        """In the program's process: give up everything it must not have."""
        namespaces = self.mode == "namespaces"
        if self.uid is not None and namespaces:
            os.setgroups([])
            os.setresgid(1000, 1000, 1000)
            os.setresuid(1000, 1000, 1000)
        linux.drop_capabilities()
        linux.forbid_new_privileges()
        if "landlock" in self.features:
            devices = [f"/dev/{name}" for name in view.DEVICES]
            landlock.restrict([*self.paths, "/proc", "/dev"], [os.getcwd(), *devices])  # noqa: PTH109
        if "seccomp" in self.features:
            alone = self.mode == "process"
            seccomp.install(
                seccomp.program(
                    unix_sockets=not alone,
                    processes=request["limits"]["processes"] > 0,
                    own_pid=os.getpid() if self.mode != "namespaces" else None,
                )
            )
        # A program may look at itself. Nobody looks at who plays a trusted role: it has a verdict.
        linux.set_dumpable(not request["trusted"])

    def _answer(self, message: dict[str, Any]) -> None:
        try:
            send_with_files(self.socket, message, ())
        except OSError:
            os._exit(0)


def main(settings: dict[str, Any]) -> child.Program:
    """Prepare, say so, serve. Returns in a program's process, with what is left to run at top level."""
    zygote = Zygote(settings)
    del sys.path[: len(settings["folders"])]
    try:
        zygote.prepare()
    except OSError as error:
        zygote._answer({"error": "refused", "message": str(error)})
        os._exit(1)
    zygote._answer({"ready": True, "features": zygote.features})
    return zygote.serve()
