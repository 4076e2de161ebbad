"""The process of another trainer: in a session of its own, watched, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from atropos_cli.domain.base import clean_text
from atropos_cli.errors import ConfigError
from atropos_cli.jobs.processes import descendants, die_with_parent

_SHOWN = 12
_TICK = 0.5


class Launched:
    """One process. Its output goes to the file `log`, behind that of earlier ones."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        """Raises ConfigError when it cannot be started."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._begun = log.stat().st_size if log.exists() else 0
        try:
            with log.open("ab") as file:
                self._popen = subprocess.Popen(  # noqa: S603 - no shell; the Python that the user named
                    list(command),
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_end_with_parent,
                )
        except OSError as error:
            raise ConfigError(f"{command[0]} cannot be started: {error.strerror}", hint="--python PATH") from error

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._popen.poll()

    def end(self, grace: float) -> None:
        """SIGTERM, and after some seconds SIGKILL, to it and everything below it."""
        below = descendants(self._popen.pid)
        if self._popen.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(grace)
        self._signal(signal.SIGKILL)
        for pid in {*below, *descendants(self._popen.pid)}:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._popen.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._popen.pid, number)

    def said(self, lines: int = _SHOWN) -> str:
        """The last lines of its output that say something."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(self._begun, size - 20_000))
            found = [line for line in clean_text(file.read().decode("utf-8", "replace")).splitlines() if line.strip()]
            return "\n".join(found[-lines:])
        return ""


def wait_until(done: Callable[[], bool], seconds: float, stopping: Callable[[], bool]) -> bool:
    """True when `done`; False when the time is over, or the run is asked to stop."""
    until = time.monotonic() + seconds
    while not (found := done()) and time.monotonic() < until and not stopping():
        time.sleep(_TICK)
    return found


def _end_with_parent() -> None:
    die_with_parent(signal.SIGTERM)
