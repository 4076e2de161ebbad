"""Wait for a SLURM job, saying each change, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from atropos_cli.builtin.slurm import reasons
from atropos_cli.builtin.slurm.launcher import SlurmLauncher
from atropos_cli.cli.slurmview import ENDED, Submitted, view
from atropos_cli.errors import LaunchError

_FIRST, _SLOWEST = 0.5, 10.0
_UNKNOWN_FOR = 60.0


def watch(job: Submitted, launcher: SlurmLauncher, say: Callable[[str], None]) -> dict[str, Any]:
    """The job's view after its end.

    Raises LaunchError for a job that will never start, and for one that nobody knows for a minute.
    """
    pause, shown = _FIRST, ""
    known = time.monotonic()
    while True:
        found = view(job, launcher)
        state, reason = found["state"], found["reason"]
        text = f"{state}" + (f", {reason}" if reason else "")
        if text != shown:
            shown, pause = text, _FIRST
            say(f"job {job.id}: {text}")
        if state in ENDED:
            return found
        if state == "pending" and reason and reasons.never(reason.partition(":")[0]):
            raise LaunchError(f"job {job.id} will never start: {reason}", hint=f"atropos slurm cancel {job.id}")
        if state != "unknown":
            known = time.monotonic()
        elif time.monotonic() - known > _UNKNOWN_FOR:
            raise LaunchError(f"the state of job {job.id} is not known", hint=f"look into {job.folder}")
        time.sleep(pause)
        pause = min(pause * 1.3, _SLOWEST)
