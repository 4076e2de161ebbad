"""The program inside a tmux pane: starts a job's command, writes its log and exit code, outlives nothing.

    python pane.py FOLDER        FOLDER holds start.json (argv, cwd) and env.json (0600, removed once it is read)

It stays as the command's parent and as child subreaper, so that whatever the command leaves behind is ended
here. Output goes to FOLDER/log.txt from the first byte, and to the pane. SIGTERM and SIGHUP (the session is
killed) ask the command to stop, SIGINT (Ctrl-C in the pane) is passed on, SIGQUIT ends everything at once.
Standard library only, and run by its path: it needs nothing of the environment that it sets up.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LEFTOVERS = 5.0
CANNOT_START = 127


def main(folder: Path) -> int:
    """Run the command of FOLDER to its end; returns its exit code, 128+n for a signal."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start = json.loads((folder / "start.json").read_text(encoding="utf-8"))
    environment = json.loads((folder / "env.json").read_text(encoding="utf-8"))
    (folder / "env.json").unlink()
    began = _now()
    pane = Pane()
    with (folder / "log.txt").open("ab", buffering=0) as log, _wakeups() as wakeup:
        pane.catch_signals()
        try:
            pane.child = subprocess.Popen(  # noqa: S603 (no shell)
                start["argv"],
                cwd=start["cwd"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )
        except OSError as error:
            log.write(f"error: the command cannot be started: {error}\n".encode())
            code: int = CANNOT_START
        else:
            me = {"pid": os.getpid(), "born": birth(os.getpid()), "host": socket.gethostname(), "started": began}
            _write(folder / "running.json", me)
            pane.after_start()
            code = pane.copy(log, wakeup)
    end = {"code": code if code >= 0 else 128 - code, "signal": None if code >= 0 else signal.Signals(-code).name}
    _write(folder / "exit.json", {**end, "stopped": pane.stopped, "started": began, "ended": _now()})
    return int(end["code"] or 0)


class Pane:
    """The command and what was asked of it."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.stopped = False
        self._pending: list[int] = []

    def catch_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # wakes the copying loop

    def after_start(self) -> None:
        """Pass on what came before there was a child."""
        for number in self._pending:
            self._pass_on(number)

    def copy(self, log: Any, wakeup: int) -> int:
        """Copy the output until the command has ended; end what it left behind. Returns its return code."""
        assert self.child is not None
        assert self.child.stdout is not None
        fd = self.child.stdout.fileno()
        os.set_blocking(fd, False)
        with contextlib.suppress(OSError):
            os.set_blocking(1, False)  # a pane that is stopped by Ctrl-S must not stop the log
        is_open = True
        while self.child.poll() is None:
            ready = select.select([fd, wakeup] if is_open else [wakeup], [], [], 10.0)[0]
            if wakeup in ready:
                _drain(wakeup)
            if fd in ready:
                is_open = _copy(fd, log)
        end_all(_LEFTOVERS)
        while is_open and select.select([fd], [], [], 0)[0]:
            is_open = _copy(fd, log)
        return self.child.returncode

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.stopped = True
        if self.child is None:
            self._pending.append(number)
        else:
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        assert self.child is not None
        if number == signal.SIGQUIT:
            _signal_all(descendants(), signal.SIGKILL)
        elif self.child.poll() is None:
            self.child.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def end_all(grace: float) -> None:
    """End every descendant: SIGTERM, then SIGKILL after `grace` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_all(descendants(), number)
        deadline = time.monotonic() + grace
        while descendants():
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        else:
            return


def descendants() -> list[int]:
    """Process ids of all that this process started, directly or not; zombies left out."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit() and (fields := _stat(int(entry))) is not None and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def birth(pid: int) -> str:
    """When a process started, in ticks since boot: with the pid it names a process for good. Empty: it is gone."""
    fields = _stat(pid)
    return "" if fields is None or fields[0] == "Z" else fields[19]


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _copy(fd: int, log: Any) -> bool:
    """Copy what is there to the log and the pane; False at the end of the output."""
    try:
        block = os.read(fd, 1 << 16)
    except BlockingIOError:
        return True
    if block:
        log.write(block)
        with contextlib.suppress(OSError):
            os.write(1, block)
    return bool(block)


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 512):
            pass


@contextlib.contextmanager
def _wakeups() -> Iterator[int]:
    """A descriptor that becomes readable at each signal."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(old)
        os.close(reader)
        os.close(writer)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
