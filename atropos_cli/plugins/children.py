"""Children that run a plugin's code: they hold nothing of ours, and nothing of them stays."""

from __future__ import annotations

import contextlib
import os
import signal

_os_write = os.write  # a plugin may put anything in its place


def become_quiet(seconds: float) -> None:
    """In a child just forked: a session of its own, no terminal, no output, and an end by itself after `seconds`."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.alarm(int(seconds) + 5)  # should nobody be left to end it
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")  # should it eat all memory, it is the one to go


def end_session(pid: int) -> None:
    """Kill the child and all it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def ending(status: int) -> str:
    """How a child ended, from its wait status: to follow its name."""
    if os.WIFSIGNALED(status):
        return f"ended the process by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended the process with exit code {os.WEXITSTATUS(status)}"


def write_all(fd: int, data: bytes) -> None:
    """Write to a pipe, whatever a plugin has done to os.write."""
    view = memoryview(data)
    while view:
        view = view[_os_write(fd, view) :]
