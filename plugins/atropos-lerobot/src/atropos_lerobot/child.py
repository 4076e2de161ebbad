"""LeRobot's process: started in its own session, heard line by line, stopped, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from atropos_cli.sdk import ConfigError, clean_text
from atropos_cli.sdk.jobs import die_with_parent

from . import place

LOG = "lerobot.log"
_TICK_S = 0.2
_READ = 65536
_LAST = 4000


class Child:
    """One training. A context manager: at its end the process and all below it are gone."""

    def __init__(self, python: str, arguments: list[str], run: Path) -> None:
        self._command = [
            python, str(place.SIDE), "train",
            json.dumps({"arguments": arguments, "checkpoints": str((run / "checkpoints").absolute())}),
        ]  # fmt: skip
        self._log = run / LOG
        self._process: subprocess.Popen[bytes] | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Child:
        self._file = self._log.open("ab")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - LeRobot's Python, and a file of ours
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._file,
                env=place.environment(), start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        except OSError as error:
            self._file.close()
            raise ConfigError(f"{self._command[0]} cannot be started: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # those that load frames, too
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._file is not None:
            self._file.close()

    def stop(self) -> None:
        """Ask for a checkpoint after the update at hand, and the end."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def lines(self) -> Iterator[dict[str, Any] | None]:
        """Its messages, until it ends; None whenever it says nothing for a moment."""
        assert self._process is not None
        assert self._process.stdout is not None
        number, rest = self._process.stdout.fileno(), b""
        while True:
            readable, _, _ = select.select([number], [], [], _TICK_S)
            if not readable:
                yield None
                continue
            data = os.read(number, _READ)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    if isinstance(said, dict):
                        yield said

    def code(self) -> int:
        """Its exit code, once lines() is at its end."""
        assert self._process is not None
        return self._process.wait()

    def said(self) -> str:
        """The end of its log."""
        with contextlib.suppress(OSError), self._log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _LAST))
            lines = clean_text(file.read().decode(errors="replace")).strip().splitlines()
            return "\n".join(lines[-3:])
        return ""
