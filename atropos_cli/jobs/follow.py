"""Wait for a job and read what it prints: each change of its state, each new line of a log, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from atropos_cli.errors import LaunchError
from atropos_cli.jobs.folder import newest_attempt
from atropos_cli.jobs.status import ENDED, view
from atropos_cli.jobs.store import Submitted, successor
from atropos_cli.ports.launcher import Launcher

_FIRST, _SLOWEST = 0.5, 10.0
_UNKNOWN_FOR = 60.0
_POLL = 0.5


def watch(job: Submitted, launcher: Launcher, say: Callable[[str], None]) -> dict[str, Any]:
    """The job's view after its end. A launcher that does not answer is waited for, however long that takes.

    Raises LaunchError for a job that will never start, and for one that cannot be asked for from here.
    """
    pause, shown = _FIRST, ""
    known = time.monotonic()
    while True:
        found = view(job, launcher)
        state, reason = found["state"], found["reason"]
        text = f"{state}" + (f", {reason}" if reason not in (None, "", state) else "")
        if text != shown:
            shown, pause = text, _FIRST
            say(f"job {job.id}: {text}")
        if state in ENDED:
            return found
        if found.get("hopeless"):
            raise LaunchError(f"job {job.id} will never start: {reason}", hint=f"atropos job cancel {job.id}")
        known = _last_known(job, found, known)
        time.sleep(pause)
        pause = min(pause * 1.3, _SLOWEST)


def to_wait_for(job: Submitted, launcher: Launcher) -> str | None:
    """The id that another job can wait for; None when this one has succeeded already.

    Raises LaunchError for a job that will not succeed, and for one whose id does not name it here.
    """
    if not job.noted and not job.identity:  # a number of which nothing is known here
        return job.id
    found = view(job, launcher)
    state, reason = found["state"], found["reason"] or "no reason known"
    if state in ("pending", "running"):
        return job.id
    if state == "finished":
        return None
    hint = "submit it again first" if state in ("failed", "cancelled", "lost") else None
    raise LaunchError(f"a job after job {job.id} would never start: that one is {state}: {reason}", hint=hint)


def _last_known(job: Submitted, found: dict[str, Any], known: float) -> float:
    """When the state was last known. Raises LaunchError when it cannot be known here, however long one waits."""
    if found["state"] != "unknown" or found.get("silent"):
        return time.monotonic()
    if time.monotonic() - known > _UNKNOWN_FOR:
        reason = found["reason"] or "its launcher does not say"
        raise LaunchError(f"the state of job {job.id} is not known: {reason}", hint=f"look into {job.folder}")
    return known


def log_names(job: Submitted, shard: int | None) -> list[str]:
    """The components that have a log."""
    return sorted(path.stem for path in _logs(job, shard).glob("*.log"))


def log_path(job: Submitted, component: str, shard: int | None) -> Path:
    """The log of a component."""
    return _logs(job, shard) / f"{component}.log"


def _logs(job: Submitted, shard: int | None) -> Path:
    """The newest logs: those of a later job in the folder are not this one's."""
    place, later = _place(job, shard), successor(job)
    if later is None:
        return place / "logs" / "latest"
    newest = newest_attempt(place, until=later.attempts_before(shard))
    return place / "logs" / f"attempt_{newest}"


def earlier_attempts(path: Path, job: Submitted) -> set[str]:
    """Names of the folders below logs/ that hold what earlier jobs printed there."""
    place = path.parent.parent.parent
    shard = int(place.name) if place.parent.name == "shards" and place.name.isdigit() else None
    return {f"attempt_{number}" for number in range(1, job.attempts_before(shard) + 1)}


def _place(job: Submitted, shard: int | None) -> Path:
    return job.folder if shard is None else job.folder / "shards" / str(shard)


def lines(path: Path, job: Submitted, launcher: Launcher) -> Iterator[str]:
    """The lines of a log as they come, over all attempts of this job from now on, until it has ended."""
    asked = known = time.monotonic()
    state = ""
    old = earlier_attempts(path, job)
    current: Path | None = None
    position = 0
    while True:
        over = state in ENDED
        real = path.resolve() if path.exists() else None
        if real is not None and real.parent.name in old:
            real = None  # of an earlier job in this folder
        if real is not None:
            if real != current:
                current, position = real, 0
            with real.open("rb") as file:
                file.seek(position)
                data = file.read()
            whole = len(data) if over else data.rfind(b"\n") + 1
            position += whole
            yield from data[:whole].decode(errors="replace").splitlines()
        if over:
            return
        if time.monotonic() - asked > 2 or not state:
            asked = time.monotonic()
            found = view(job, launcher)
            state = str(found["state"])
            if state in ENDED:
                continue
            known = _last_known(job, found, known)
        time.sleep(_POLL)
