"""The one list of submitted jobs. A job is its folder; submitted.json there says which launcher has it, as what.

The list in the user's state folder holds a line for each job, so that jobs can be found by id or name.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atropos_cli.errors import AtroposError, UsageError
from atropos_cli.io.append import atomic_write
from atropos_cli.jobs.folder import newest_attempt, read_record
from atropos_cli.ports.launcher import JobSpec, Launcher

SUBMITTED = "submitted.json"
_EARLIER = "slurm.jsonl"
"""The list's name when only SLURM had one."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that was submitted. id: as its launcher knows it; ID;CLUSTER where there are several clusters.

    time: when, in seconds since 1970; 0 where it is not known. The id alone does not tell jobs apart: clusters
    begin again at 1, so `identity` keeps more facts that its launcher gave. earlier: how many attempts of earlier jobs
    its folder held, for an array one number for each shard: their files say nothing about this job.
    """

    id: str
    name: str
    folder: Path
    launcher: str = "slurm"
    time: float = 0.0
    identity: Mapping[str, str] = field(default_factory=dict)
    earlier: tuple[int, ...] = (0,)

    @property
    def noted(self) -> bool:
        """Is it in the list, and not just a number that the user gave?"""
        return self.folder != Path()

    def attempts_before(self, shard: int | None = None) -> int:
        """Attempts of earlier jobs in the folder, or in that of a shard."""
        index = shard or 0
        return self.earlier[index] if index < len(self.earlier) else 0

    @property
    def spec(self) -> JobSpec:
        """The job as far as its folder and name go."""
        return JobSpec(name=self.name, run=str(self.folder))


def index_path(name: str = "jobs.jsonl") -> Path:
    """The list of submitted jobs."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "atropos" / name


def attempts_in(folder: Path, shards: int | None = None) -> tuple[int, ...]:
    """The number of attempts in a job's folder, or in those of its shards; to be counted before it is submitted."""
    if shards is None:
        return (newest_attempt(folder),)
    return tuple(newest_attempt(folder / "shards" / str(index)) for index in range(shards))


def remember(folder: Path, job_id: str, spec: JobSpec, launcher: Launcher, earlier: tuple[int, ...] = (0,)) -> None:
    """Note in the folder and in the list that the job was submitted. earlier: attempts_in before that."""
    now = time.time()
    known: dict[str, Any] = {"earlier": list(earlier)}
    with contextlib.suppress(AtroposError):  # it is submitted all the same
        known["identity"] = dict(launcher.status(job_id).identity)
    record: dict[str, Any] = {"launcher": launcher.source or launcher.name, "id": job_id, "name": spec.name}
    command = launcher.call(spec)
    full = {**record, **({"command": command} if command else {}), **known, "time": now}
    atomic_write(folder / SUBMITTED, json.dumps(full, indent=2).encode() + b"\n")
    path = index_path()
    with contextlib.suppress(OSError):  # the job's folder knows it as well
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps({**record, "folder": str(folder), **known, "time": now}) + "\n")


def submitted_jobs(launcher: str | None = None) -> list[Submitted]:
    """The jobs of the list whose folders are still there, the newest last; those of one launcher, or all."""
    found: dict[str, Submitted] = {}
    for path in (index_path(_EARLIER), index_path()):
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    job = _job(json.loads(line), None)
                    if launcher in (None, job.launcher) and (job.folder / SUBMITTED).exists():
                        found[f"{job.id} {job.folder}"] = job
    return list(found.values())


def find(text: str, launcher: str | None = None) -> Submitted:
    """A job by its folder, its id, or its name (the newest of that name). Raises UsageError.

    An id that is not in the list is taken as it is when a launcher is named: it may come from elsewhere.
    """
    folder = Path(text)
    if (folder / SUBMITTED).exists():
        return read_submitted(folder.absolute())
    jobs = submitted_jobs(launcher)
    for job in reversed(jobs):
        if text in (job.id, job.id.partition(";")[0], job.name, job.folder.name):
            return job
    if launcher is not None and text.partition(";")[0].isdigit():
        return Submitted(text, text, Path(), launcher)
    names = ", ".join(dict.fromkeys(job.folder.name for job in jobs[-5:]))
    raise UsageError(f"there is no job {text!r}", hint=f"newest: {names}" if names else "atropos job list")


def successor(job: Submitted) -> Submitted | None:
    """The job that was submitted into the folder after this one; None for the newest one there."""
    if not job.noted or not (job.folder / SUBMITTED).exists():
        return None
    newest = read_submitted(job.folder)
    if (newest.id, newest.time) == (job.id, job.time) or not job.time or newest.time <= job.time:
        return None
    later = [other for other in submitted_jobs() if other.folder == job.folder and other.time > job.time]
    return min([*later, newest], key=lambda other: other.time)


def read_submitted(folder: Path) -> Submitted:
    """The job of a folder that was submitted."""
    return _job(read_record(folder / SUBMITTED) or {}, folder)


def _job(item: dict[str, Any], folder: Path | None) -> Submitted:
    place = Path(item["folder"]) if folder is None else folder
    when = item.get("time")
    return Submitted(
        str(item.get("id", "")),
        str(item.get("name", place.name)),
        place,
        str(item.get("launcher", "slurm")),
        float(when) if isinstance(when, int | float) else 0.0,
        {str(key): str(value) for key, value in (item.get("identity") or {}).items()},
        tuple(int(number) for number in item.get("earlier") or (0,)),
    )
