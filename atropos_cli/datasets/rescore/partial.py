"""An output that a stopped command can continue: finished lines, and a note of how far the input was read.

During the work, lines are appended to `<output>.partial`; `<output>.partial.json` says how many records
and bytes are safe, and what was being done (the fingerprint). Resuming cuts the file there and skips so
many records of the input.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from atropos_cli.errors import DataError, PlanChanged, RunExists, RunLocked
from atropos_cli.io.append import atomic_write
from atropos_cli.io.lock import lock_fd

_EVERY = 1.0


class Partial:
    """The unfinished output of one command. `open` it, `add` records, then read `lines` and `remove`, or `close`."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(target.name + ".partial")
        self._state_path = target.with_name(target.name + ".partial.json")
        self._file: IO[bytes] | None = None
        self._fingerprint: dict[str, Any] = {}
        self._saved = 0.0
        self.records = 0
        self.counts: dict[str, Any] = {}

    def open(self, fingerprint: dict[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Start, or continue. Raises RunExists, PlanChanged, RunLocked."""
        fingerprint = json.loads(json.dumps(fingerprint, default=str))
        state = self._read_state()
        if state is not None and not resume and not overwrite:
            raise RunExists(
                f"{self.path} holds {state['records']} records of a stopped run",
                hint="--resume continues it, --overwrite starts over",
            )
        file = self.path.open("ab")
        try:
            lock_fd(file.fileno(), wait=0)
        except OSError as error:
            file.close()
            raise RunLocked(f"{self.path} is being written by another process", hint="give another -o") from error
        if state is not None and resume:
            if state["fingerprint"] != fingerprint:
                file.close()
                raise PlanChanged(
                    f"{self.path} was started with other options:\n"
                    + "\n".join(_differences(state["fingerprint"], fingerprint)),
                    hint="repeat the original options, or start over with --overwrite",
                )
            file.truncate(state["bytes"])
            self.records, self.counts = state["records"], state["counts"]
        else:
            file.truncate(0)
        file.seek(0, os.SEEK_END)
        self._file = file
        self._fingerprint = fingerprint
        self.save()

    def add(self, lines: Sequence[bytes]) -> None:
        """Append the lines of one record."""
        assert self._file is not None
        try:
            for line in lines:
                self._file.write(line + b"\n")
        except OSError as error:
            raise DataError(f"{self.path}: {error.strerror or error}; {self.records} records are safe") from error
        self.records += 1
        if time.monotonic() - self._saved > _EVERY:
            self.save()

    def save(self) -> None:
        """Make the added lines durable. Update `counts` before."""
        assert self._file is not None
        self._file.flush()
        os.fdatasync(self._file.fileno())
        state = {
            "fingerprint": self._fingerprint,
            "records": self.records,
            "bytes": self._file.tell(),
            "counts": self.counts,
        }
        atomic_write(self._state_path, json.dumps(state).encode())
        self._saved = time.monotonic()

    def lines(self) -> Iterator[bytes]:
        """All finished lines, without their newlines."""
        assert self._file is not None
        self._file.flush()
        with self.path.open("rb") as file:
            for line in file:
                yield line.rstrip(b"\n")

    def close(self) -> None:
        """Save and release. Safe to call twice."""
        if self._file is not None:
            with contextlib.suppress(OSError, DataError):
                self.save()
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """The output is in place: drop the partial one."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.path.unlink(missing_ok=True)
        self._state_path.unlink(missing_ok=True)

    def _read_state(self) -> dict[str, Any] | None:
        if not self._state_path.exists() or not self.path.exists():
            return None
        try:
            state = json.loads(self._state_path.read_bytes())
            if state["bytes"] > self.path.stat().st_size:
                raise ValueError("the file is shorter than noted")
            return {key: state[key] for key in ("fingerprint", "records", "bytes", "counts")}
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self._state_path} is damaged: {error}", hint="start over with --overwrite") from error


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [f"  {key}: {old.get(key)} then, {new.get(key)} now" for key in new if old.get(key) != new.get(key)]
