"""How a run stands. Its records say how it ended; whether it is still running only its lock can tell."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Literal, get_args

from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.runlock import lock_state

State = Literal["running", "finished", "interrupted", "stopped", "failed", "lost", "planned", "unreadable"]
STATES: tuple[State, ...] = get_args(State)
SETTLED: frozenset[State] = frozenset({"finished", "interrupted", "stopped", "failed"})
"""States that hold until somebody writes into the folder."""

SILENT_S = 900.0
"""Seconds after which a run whose lock cannot be asked is given up: a run of gen writes its summary every 10."""

_WRITTEN = ("summary.json", "train.json", "metrics.jsonl", "groups.jsonl", "groups.jsonl.zst", "log.jsonl", "lock")
_ENDED: dict[str, State] = {"finished": "finished", "interrupted": "interrupted", "stopped": "stopped"}
_ENDED["failed"] = "failed"


def state_of(folder: Path, recorded: object, *, complete: bool = True, begun: bool = True) -> State:
    """recorded: the state that the summary or train.json names, None without one.

    complete: everything that the plan asks for is there. begun: there is a trace of a start.

    A process that ended in order emptied the lock file, so one that is not empty and not held was killed.
    """
    ended = _ENDED.get(recorded) if isinstance(recorded, str) else None
    lock = lock_state(folder)
    if lock == "held":
        return "running"
    if lock in ("elsewhere", "unknown") and not _job_ended(folder):
        if ended is not None and lock == "unknown":
            return ended
        return "running" if _silent_for(folder) < SILENT_S else "lost"
    if ended == "finished" and not complete and lock != "free":
        return "interrupted"  # gone on with, and killed before it wrote how far it was
    if ended is not None:
        return ended
    return "interrupted" if begun or recorded is not None else "planned"


def written_at(folder: Path) -> float | None:
    """When the run last wrote into its folder, in seconds since the epoch."""
    times = []
    for name in _WRITTEN:
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times, default=None)


def _silent_for(folder: Path) -> float:
    last = written_at(folder)
    return float("inf") if last is None else time.time() - last


def _job_ended(folder: Path) -> bool:
    """Does the job that carried the run out say that it is over?"""
    try:
        return not read_object(folder / "exit.json").get("requeued")
    except (OSError, ValueError):
        return False
