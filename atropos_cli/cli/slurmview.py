"""Jobs that were submitted: the list of them, one by folder, id or name, how it stands, what it printed.

A job's own files are asked first (exit.json, endpoints, status), SLURM second: it forgets jobs after minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.builtin.slurm.client import JobRecord
from atropos_cli.builtin.slurm.launcher import SUBMITTED, SlurmLauncher, explain
from atropos_cli.errors import LaunchError, UsageError
from atropos_cli.jobs.folder import attempts, read_job, read_record

ENDED = ("finished", "failed", "cancelled", "lost")
_POLL = 0.5


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that was submitted: SLURM's id and its folder."""

    id: str
    name: str
    folder: Path


def index_path() -> Path:
    """The list of submitted jobs."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "atropos" / "slurm.jsonl"


def remember(job: Submitted, when: str) -> None:
    """Add to the list."""
    path = index_path()
    with contextlib.suppress(OSError):  # the job's folder knows it as well
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps({"id": job.id, "name": job.name, "folder": str(job.folder), "time": when}) + "\n")


def submitted_jobs() -> list[Submitted]:
    """All jobs of the list whose folders are still there, the newest last."""
    found: dict[str, Submitted] = {}
    with contextlib.suppress(OSError):
        for line in index_path().read_text().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                item = json.loads(line)
                job = Submitted(str(item["id"]), str(item["name"]), Path(item["folder"]))
                if (job.folder / SUBMITTED).exists():
                    found[f"{job.id} {job.folder}"] = job
    return list(found.values())


def find(text: str) -> Submitted:
    """A job by its folder, its id, or its name (the newest of that name). Raises UsageError."""
    folder = Path(text)
    if (folder / SUBMITTED).exists():
        return read_submitted(folder.absolute())
    jobs = submitted_jobs()
    for job in reversed(jobs):
        if text in (job.id, job.id.partition(";")[0], job.name, job.folder.name):
            return job
    if text.partition(";")[0].isdigit():
        return Submitted(text, text, Path())
    names = ", ".join(dict.fromkeys(job.folder.name for job in jobs[-5:]))
    raise UsageError(f"there is no job {text!r}", hint=f"newest: {names}" if names else "atropos slurm list")


def read_submitted(folder: Path) -> Submitted:
    record = read_record(folder / SUBMITTED) or {}
    return Submitted(str(record.get("id", "")), str(record.get("name", folder.name)), folder)


def view(job: Submitted, launcher: SlurmLauncher) -> dict[str, Any]:
    """How a job stands, for people and programs."""
    records = _records(job, launcher)
    plan = None
    with contextlib.suppress(Exception):
        plan = read_job(job.folder / "job.json")
    count = plan.resources.array if plan is not None else None
    found: dict[str, Any] = {"id": job.id, "name": job.name, "folder": str(job.folder)}
    if count is not None:
        by_task = {record.task: record for record in records}
        shards = [_one(job.folder / "shards" / str(index), _of_task(by_task, index)) for index in range(count)]
        found |= _together(shards)
        found["shards"] = [{"shard": index, **shard} for index, shard in enumerate(shards)]
        found["merged"] = (job.folder / "summary.json").exists()
        return found
    return found | _one(job.folder, records[0] if records else None)


def _records(job: Submitted, launcher: SlurmLauncher) -> list[JobRecord]:
    try:
        return launcher.records(job.id)
    except LaunchError:
        return []  # no SLURM on this machine, or it does not answer: the folder tells what it can


def _of_task(records: dict[str | None, JobRecord], index: int) -> JobRecord | None:
    """The record of one task; those that wait share one, with a range such as 2-7%2."""
    if str(index) in records:
        return records[str(index)]
    for task, record in records.items():
        for part in (task or "").partition("%")[0].split(","):
            low, _, high = part.partition("-")
            if low.isdigit() and int(low) <= index <= int(high or low):
                return record
    return None


def _one(folder: Path, record: JobRecord | None) -> dict[str, Any]:
    """One job, or one shard."""
    ended = read_record(folder / "exit.json")
    numbers = attempts(folder)
    found: dict[str, Any] = {"state": "unknown", "exit_code": None, "reason": None, "attempt": max(numbers, default=0)}
    if ended is not None and not ended.get("requeued"):
        found["exit_code"], found["reason"] = ended.get("code"), ended.get("reason")
        found["state"] = "finished" if ended.get("code") == 0 else "failed"
        if record is not None and record.state == "cancelled":
            found["state"] = "cancelled"
    elif record is not None:
        found["state"], found["reason"] = record.state, explain(record)
        if record.state == "failed":
            found["exit_code"] = record.code
    elif ended is not None:
        found |= {"state": "unknown", "reason": "was to be queued again, and SLURM does not know it"}
    elif numbers:
        found |= {"state": "lost", "reason": "SLURM does not know it any more, and it left no exit.json: killed"}
    if record is not None:
        found |= {"slurm_state": record.slurm_state, "nodes": record.nodes, "run_time": record.run_time}
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


def log_path(job: Submitted, component: str | None, shard: int | None) -> Path:
    """The log of a component, or of the supervisor (None)."""
    folder = job.folder if shard is None else job.folder / "shards" / str(shard)
    if component is None:
        name = job.id.partition(";")[0]
        return job.folder / (f"slurm-{name}.out" if shard is None else f"slurm-{name}_{shard}.out")
    return folder / "logs" / "latest" / f"{component}.log"


def log_names(job: Submitted, shard: int | None) -> list[str]:
    """The components that have a log."""
    folder = job.folder if shard is None else job.folder / "shards" / str(shard)
    return sorted(path.stem for path in (folder / "logs" / "latest").glob("*.log"))


def follow(path: Path, job: Submitted, launcher: SlurmLauncher) -> Iterator[str]:
    """The lines of a log as they come, over all attempts from now on, until the job has ended."""
    asked = time.monotonic()
    state = ""
    current: Path | None = None
    position = 0
    while True:
        over = state in ENDED
        real = path.resolve() if path.exists() else None
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
            state = str(view(job, launcher)["state"])
            if state in ENDED:
                continue
        time.sleep(_POLL)
