"""How a submitted job stands: its own files are asked first (exit.json, endpoints, status), its launcher second.

A launcher may forget a job minutes after its end; the folder does not.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from atropos_cli.errors import LaunchError, PluginError
from atropos_cli.jobs.folder import attempts, read_job, read_record
from atropos_cli.jobs.store import Submitted
from atropos_cli.ports.launcher import JobStatus, Launcher

ENDED = ("finished", "failed", "cancelled", "lost")


def view(job: Submitted, launcher: Launcher) -> dict[str, Any]:
    """How a job stands, for people and programs."""
    plan = None
    with contextlib.suppress(Exception):
        plan = read_job(job.folder / "job.json")
    count = plan.resources.array if plan is not None else None
    found: dict[str, Any] = {"id": job.id, "name": job.name, "folder": str(job.folder)}
    if count is None:
        return found | _one(job.folder, *_told(job, launcher))
    known, silent = _told_of_tasks(job, launcher, count)
    shards = [_one(job.folder / "shards" / str(index), known.get(index), silent) for index in range(count)]
    found |= _together(shards)
    found["shards"] = [{"shard": index, **shard} for index, shard in enumerate(shards)]
    found["merged"] = (job.folder / "summary.json").exists()
    return found


def _told(job: Submitted, launcher: Launcher) -> tuple[JobStatus | None, str | None]:
    """What the launcher says, None where it does not know the job; and why it does not answer, where it does not."""
    try:
        status = launcher.status(job.id)
    except (LaunchError, PluginError) as error:
        return None, error.message
    return (None if status.state == "unknown" and not status.detail else status), None


def _told_of_tasks(job: Submitted, launcher: Launcher, count: int) -> tuple[dict[int, JobStatus], str | None]:
    try:
        return dict(launcher.tasks(job.id, count)), None
    except (LaunchError, PluginError) as error:
        return {}, error.message


def _one(folder: Path, told: JobStatus | None, silent: str | None = None) -> dict[str, Any]:
    """One job, or one shard. silent: why its launcher does not answer."""
    ended = read_record(folder / "exit.json")
    numbers = attempts(folder)
    found: dict[str, Any] = {"state": "unknown", "exit_code": None, "reason": None, "attempt": max(numbers, default=0)}
    if ended is not None and not ended.get("requeued"):
        found["exit_code"], found["reason"] = ended.get("code"), ended.get("reason")
        found["state"] = "finished" if ended.get("code") == 0 else "failed"
        if told is not None and told.state == "cancelled":
            found["state"] = "cancelled"
    elif told is not None:
        found["state"], found["reason"] = told.state, told.reason
        if told.state == "failed":
            found["exit_code"] = told.exit_code
        if told.hopeless:
            found["hopeless"] = True
    elif silent is not None:
        found["reason"] = silent
    elif ended is not None:
        found |= {"state": "unknown", "reason": "was to be queued again, and its launcher does not know it"}
    elif numbers:
        found |= {"state": "lost", "reason": "its launcher does not know it any more, and it left no exit.json: killed"}
    if told is not None:
        found |= told.detail
    found["components"] = _components(folder)
    return found


def _components(folder: Path) -> list[dict[str, Any]]:
    """The components that were started, in the order of the plan."""
    try:
        names = [item.name for item in read_job(folder / "job.json").components]
    except Exception:  # noqa: BLE001 - a folder without a plan that can be read has no components to show
        return []
    found = []
    for name in names:
        endpoint = read_record(folder / "endpoints" / f"{name}.json")
        status = read_record(folder / "status" / f"{name}.json")
        state = "ended" if status else "running" if endpoint else "not started"
        found.append(
            {
                "name": name,
                "state": state,
                "code": status["code"] if status else None,
                "node": endpoint["node"] if endpoint else None,
                "host": endpoint["host"] if endpoint else None,
                "ports": endpoint["ports"] if endpoint else {},
            }
        )
    return found


def _together(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """The state of an array: running while one runs, failed when one failed."""
    states = [shard["state"] for shard in shards]
    for state in ("running", "pending", "failed", "cancelled", "lost", "unknown"):
        if state in states:
            first = shards[states.index(state)]
            ended = None if state in ("running", "pending") else first["exit_code"]
            return {"state": state, "exit_code": ended, "reason": first["reason"]}
    return {"state": "finished", "exit_code": 0, "reason": None}
