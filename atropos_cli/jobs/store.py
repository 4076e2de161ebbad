"""The one list of submitted jobs. A job is its folder; submitted.json there says which launcher has it, as what.

The list in the user's state folder holds a line for each job, so that jobs can be found by id or name.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from atropos_cli.errors import AtroposError, DataError, UsageError
from atropos_cli.io.append import atomic_write
from atropos_cli.jobs.folder import is_there, newest_attempt, read_record
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
    """Note in the folder and in the list that the job was submitted. earlier: attempts_in before that.

    Raises DataError where the folder cannot be written.
    """
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
        line = json.dumps({**record, "folder": str(folder), **known, "time": now}).encode() + b"\n"
        with path.open("a+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            torn = size > 0 and file.read(1) != b"\n"  # a line that was cut off on a full disk
            file.write(b"\n" + line if torn else line)


def submitted_jobs(launcher: str | None = None) -> list[Submitted]:
    """The jobs of the list whose folders are still there, the newest last; those of one launcher, or all."""
    found: dict[str, Submitted] = {}
    for job in _listed():
        if launcher in (None, job.launcher) and is_there(job.folder / SUBMITTED):
            found[f"{job.id} {job.folder}"] = job
    return list(found.values())


def find(text: str, launcher: str | None = None) -> Submitted:
    """A job by its folder, its id, or its name: the newest of them. Raises UsageError."""
    return candidates(text, launcher)[0]


def candidates(text: str, launcher: str | None = None) -> list[Submitted]:
    """The jobs that a user may mean by a folder, a name or an id, the newest first: an id may be that of several.

    An id that is not in the list is taken as it is when a launcher is named: it may come from elsewhere. Raises
    UsageError where there is none.
    """
    folder = Path(text)
    if is_there(folder / SUBMITTED):
        return [read_submitted(folder.absolute())]
    jobs = submitted_jobs(launcher)
    for job in reversed(jobs):
        if _has_id(job, text):
            return [other for other in reversed(jobs) if other.launcher == job.launcher and _has_id(other, text)]
        if text in (job.name, job.folder.name):
            return [job]
    if launcher is not None and text.partition(";")[0].isdigit():
        gone = [job for job in _listed() if job.launcher == launcher and _has_id(job, text)]
        known = gone[-1] if gone else Submitted(text, text, Path(), launcher)
        return [replace(known, folder=Path())]
    names = ", ".join(dict.fromkeys(job.folder.name for job in jobs[-5:]))
    raise UsageError(f"there is no job {text!r}", hint=f"newest: {names}" if names else "atropos job list")


def successor(job: Submitted) -> Submitted | None:
    """The job that was submitted into the folder after this one; None for the newest one there.

    The order is that of the list: clocks of two machines may differ.
    """
    if not job.noted or not is_there(job.folder / SUBMITTED):
        return None
    newest = read_submitted(job.folder)
    if _same(newest, job):
        return None
    there = [other for other in _listed() if other.folder == job.folder]
    after = max((place for place, other in enumerate(there, start=1) if _same(other, job)), default=len(there))
    return next(iter(there[after:]), newest)


def read_submitted(folder: Path) -> Submitted:
    """The job of a folder that was submitted; where its record is damaged, as the list has it. Raises DataError."""
    with contextlib.suppress(ValueError):
        return _job(read_record(folder / SUBMITTED), folder)
    listed = [job for job in _listed() if job.folder == folder]
    if not listed:
        raise DataError(
            f"{folder / SUBMITTED} is damaged: it does not name the job of its folder",
            hint="remove it when no job uses the folder any more",
        )
    return listed[-1]


def _has_id(job: Submitted, text: str) -> bool:
    return text in (job.id, job.id.partition(";")[0])


def _same(one: Submitted, other: Submitted) -> bool:
    """Earlier versions noted no times."""
    return one.id == other.id and (one.time == other.time or not (one.time and other.time))


def _listed() -> Iterator[Submitted]:
    """Every job of the list, the oldest first. Lines that are damaged are ignored."""
    for path in (index_path(_EARLIER), index_path()):
        with contextlib.suppress(OSError):
            for line in path.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    yield _job(json.loads(line), None)


def _job(item: Any, folder: Path | None) -> Submitted:
    """From a record. Raises ValueError for one that is damaged."""
    try:
        place = Path(item["folder"]) if folder is None else folder
        job_id, when, identity = item["id"], item.get("time"), item.get("identity") or {}
        if not isinstance(job_id, str | int) or job_id == "":
            raise ValueError("no id")
        return Submitted(
            str(job_id),
            str(item.get("name", place.name)),
            place,
            str(item.get("launcher", "slurm")),
            float(when) if isinstance(when, int | float) else 0.0,
            {str(key): str(value) for key, value in identity.items()},
            tuple(int(number) for number in item.get("earlier") or (0,)),
        )
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"not the record of a job: {error}") from error
