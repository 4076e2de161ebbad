"""One process of ours: started in a group of its own, heard through a socket, killed with what it started, reaped."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Any, BinaryIO


def python(*words: str) -> list[str]:
    """The command of a Python that takes nothing from the current folder."""
    return [sys.executable, "-P", "-X", "utf8", *words]


class Started:
    """A process in a group of its own. Its standard input is one end of a socket, the other one is ours."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: IO[bytes] | int | None = subprocess.DEVNULL,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
    ) -> None:
        """Start it. Raises OSError.

        log: where what it prints goes; None leaves it our standard error. user: a user id to start it with.
        """
        self._connection, theirs = socket.socketpair()
        as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program, no text from outside
                command, stdin=theirs.fileno(), stderr=log, cwd=cwd, env=env, start_new_session=True,
                stdout=subprocess.DEVNULL if log is None else log, **as_user,
            )  # fmt: skip
        except OSError:
            self._connection.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The process id; also its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self.exit_code() is None

    @cached_property
    def incoming(self) -> BinaryIO:
        """What the process sends, for `child.receive`."""
        return self._connection.makefile("rb")

    def exit_code(self) -> int | None:
        """The exit code (negative: signal) of a process that ended, without reaping it; None while it runs."""
        process = self._process
        if process.returncode is not None:
            return process.returncode
        try:
            found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return process.poll()
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def ending(self) -> str:
        """How the process ended, in words."""
        code = self.exit_code()
        if code is None:
            return "its process went silent"
        if code < 0:
            names = {int(number): number.name for number in signal.Signals}
            return f"its process was killed by {names.get(-code, f'signal {-code}')}"
        return f"its process ended with exit code {code}"

    def end(self, grace: float = 0.0) -> None:
        """Close our end, which asks the process to end; kill its group when it does not in `grace` seconds; reap it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if grace:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self._kill_group()
        self._process.wait()
        if "incoming" in self.__dict__:
            self.incoming.close()
        self._connection.close()

    def _kill_group(self) -> None:
        # Not reaped before this: the number cannot belong to another group yet.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
