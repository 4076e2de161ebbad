"""Verdicts on disk: one append-only file of JSON lines for each judge, shared by any number of processes.

A line is {"key": digest of the question, "vote": number, "score": score}; {"again": true} marks one that was asked
for anew and replaces what stands before it. Of several others with one key and vote the first counts, so whoever reads
the file gets the same verdict. A line is written by one call under a lock; one that a killed process left half is
ended by the next writer and skipped by every reader.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.data import file_lock

log = logging.getLogger("atropos.judge")
Votes = dict[int, float]


def digest(value: Any) -> str:
    """32 hex digits of the sha256 of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class VerdictCache:
    """The verdicts of one judge. `folder` None: only in memory, so nothing is known in the beginning.

    A file that cannot be read or written costs a warning and money, never a rollout.
    """

    def __init__(self, folder: Path | None, identity: JsonDict, about: Mapping[str, Any]) -> None:
        self.path = None if folder is None else folder / f"{digest(identity)}.jsonl"
        self._about = {"judge": dict(about)}
        self._known: dict[str, Votes] = {}
        self._read = 0
        self._broken = False

    def votes(self, key: str) -> Votes:
        """What is known of a question, also by other processes by now."""
        if key not in self._known:
            with self._forgiven():
                self._catch_up()
        return dict(self._known.get(key, {}))

    def add(self, key: str, votes: Mapping[int, float], *, again: bool = False) -> Votes:
        """Store votes; those of the question that count from now on (another process may have been earlier)."""
        known = self._known.setdefault(key, {})
        if self.path is None or self._broken:
            self._take(key, votes, again=again)
            return dict(known)
        with self._forgiven(), self._locked() as file:
            self._catch_up()
            known = self._known.setdefault(key, {})
            new = {vote: score for vote, score in votes.items() if again or vote not in known}
            lines = [{"key": key, "vote": vote, "score": score} for vote, score in new.items()]
            data = b"".join(json.dumps(line | ({"again": True} if again else {})).encode() + b"\n" for line in lines)
            self._append(file, data)
        self._take(key, votes, again=again)
        return dict(self._known[key])

    def _take(self, key: str, votes: Mapping[int, float], *, again: bool) -> None:
        known = self._known.setdefault(key, {})
        for vote, score in votes.items():
            if again or vote not in known:
                known[vote] = score

    @contextlib.contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._broken:
                log.warning("the judge's verdicts cannot be kept in %s: %s", self.path, error.strerror or error)
            self._broken = True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(self.path) as file:
            yield file

    def _append(self, file: int, data: bytes) -> None:
        size = os.fstat(file).st_size
        if size == 0:
            data = json.dumps(self._about).encode() + b"\n" + data
        elif os.pread(file, 1, size - 1) != b"\n":
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(file, view) :]
        except OSError:
            os.ftruncate(file, size)
            raise

    def _catch_up(self) -> None:
        """Read what was written since the last time, whole lines only."""
        if self.path is None or self._broken:
            return
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size <= self._read:
                    return
                file.seek(self._read)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._read += len(line)
                    self._take_line(line)
        except FileNotFoundError:
            return

    def _take_line(self, line: bytes) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            data = json.loads(line)
            score = float(data["score"])
            if math.isfinite(score):
                self._take(str(data["key"]), {int(data["vote"]): score}, again=bool(data.get("again")))
