"""Runs one server between two pipes: python guard.py COMMAND... Standard library only.

Every message is a line. Other lines of the server than JSON objects are dropped; one that is too long ends it. When
our standard input ends, which it also does when the run is killed, the server and all that it started are killed. What
the server printed last on its standard error goes to ours at the end.

It is two processes, so that nothing is left when one of them is killed: the inner one runs the server, in a session of
its own, and ends when the outer one does; the outer one kills what the inner one leaves.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO

LONGEST = 8 << 20
"""Bytes of one message."""
_TAIL = 4000
_GRACE = 1.0
_KILLING = 10.0
"""Seconds after which a server that starts processes faster than they are killed is left."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_HALF = re.compile("[\ud800-\udfff]")


def main(command: list[str]) -> int:
    """The exit code of the server; 120 when it cannot be started, 121 after a line that is too long."""
    if not _bound(os.getppid()):
        return 143
    asked = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked)  # until each process knows what to do
    outer = os.getpid()
    inner = os.fork()
    if not inner:
        os.setsid()  # who ends the group of the outer one leaves the inner one to its work
        os._exit(_status(_run(command) if _bound(outer) else 143))

    def passed_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(inner, number)

    signal.signal(signal.SIGTERM, passed_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, asked)
    code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is left is being killed
    _kill_children()
    if code < 0:
        os.write(2, f"the process that ran the server was ended by signal {-code}".encode())
    return code


def _bound(parent: int) -> bool:
    """End with that parent, and inherit what descendants leave. False: the parent has ended before."""
    with contextlib.suppress(OSError, AttributeError):  # elsewhere than on Linux only its group is killed
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # a server that reads nothing blocks our watch of the pipe
    return os.getppid() == parent


def _killed_with(guard: int) -> None:
    """In the server's process: it is killed when its parent is, even when both guards are killed at once."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != guard:  # killed before that was said
        os._exit(137)


def _run(command: list[str]) -> int:
    """Run the server to its end; see main."""
    started: list[subprocess.Popen[bytes]] = []
    asked: list[int] = []

    def ended(number: int, _: object) -> None:
        asked.append(number)
        for server in started:
            _kill(server)
            os._exit(143)

    signal.signal(signal.SIGTERM, ended)  # before there is a server, which would outlive us
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    pipe = subprocess.PIPE
    try:
        server = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            preexec_fn=functools.partial(_killed_with, os.getpid()),  # no thread has started yet
        )
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror or error}\n")
        sys.stderr.flush()
        return 120
    started.append(server)
    if asked:
        _kill(server)
        return 143
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stderr is not None
    said: deque[bytes] = deque(maxlen=_TAIL)
    fault: list[str] = []
    out = threading.Thread(target=_pass_on, args=(server, server.stdout, fault), daemon=True)
    err = threading.Thread(target=_keep_tail, args=(server.stderr, said), daemon=True)
    threading.Thread(target=_feed, args=(server, server.stdin), daemon=True).start()
    out.start()
    err.start()
    code = server.wait()
    _kill(server)
    out.join(_GRACE)
    err.join(_GRACE)
    os.write(2, b"".join(said) + "".join(fault).encode())
    return 121 if fault else code


def _feed(server: subprocess.Popen[bytes], to: IO[bytes]) -> None:
    """Our input to the server; at its end, the end of the server."""
    with contextlib.suppress(OSError):
        while data := os.read(0, 1 << 16):
            to.write(data)
            to.flush()
    with contextlib.suppress(OSError):
        to.close()
    end = time.monotonic() + _GRACE
    while server.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    _kill(server)


def _pass_on(server: subprocess.Popen[bytes], lines: IO[bytes], fault: list[str]) -> None:
    """The server's messages to our output."""
    with contextlib.suppress(OSError):
        while line := lines.readline(LONGEST):
            if not line.endswith(b"\n") and len(line) >= LONGEST:
                fault.append(f"it sent a line of more than {LONGEST >> 20} MB")
                _kill(server)
                return
            if line.lstrip().startswith(b"{") and line.rstrip().endswith(b"}"):
                _write(1, _readable(line.strip()) + b"\n")


def _readable(line: bytes) -> bytes:
    """A message without bytes that are not UTF-8 and escapes of half a character: for them the package reads nothing.

    The call would wait for its answer until its time is over. They are what Python makes of a file's odd name.
    """
    text = line.decode("utf-8", "replace")
    if "\\ud" in text.lower():
        with contextlib.suppress(ValueError, RecursionError):  # not JSON: as it is
            message = json.dumps(json.loads(text), ensure_ascii=False)
            if _HALF.search(message):  # else the server's own spelling of numbers stays
                text = message
    return text.encode("utf-8", "replace")


def _write(to: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to, view) :]


def _keep_tail(stream: IO[bytes], said: deque[bytes]) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(stream.fileno(), 1 << 16):
            said.extend(bytes([byte]) for byte in data[-_TAIL:])


def _kill(server: subprocess.Popen[bytes]) -> None:
    """The server's group, then whatever it left to us: processes that went into groups of their own.

    They are ours only when their parent is dead, for which a busy machine takes its time.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError, AttributeError):  # the exit code is for whoever waits for the server
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    _kill_children(server.pid)


def _kill_children(spared: int = 0) -> None:
    """All our children, and theirs, which are ours then; but one, which is dead."""
    end = time.monotonic() + _KILLING
    while (children := [pid for pid in _children() if pid != spared]) and time.monotonic() < end:
        for pid in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - quick to start
            with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123 - quick to start
                found += [int(pid) for pid in file.read().split()]
    return found


def _status(code: int) -> int:
    """As shells write it: that of a process which a signal ended is above 128."""
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        os._exit(_status(main(sys.argv[1:])))
