"""The files of a job in its folder, written by the supervisor and read by `status` and `logs`.

    job.json            the plan            submitted.json   where it was sent (launcher, id)
    events.jsonl        what happened       exit.json        how the last attempt ended
    endpoints/NAME.json host, ports, pid    status/NAME.json exit code of a component
    logs/attempt_N/NAME.log                 logs/latest      link to the newest attempt

They lie beside those of a run (plan.json, groups.jsonl, ...), so that one folder tells everything.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.job import JOB_FILE, JobPlan
from atropos_cli.errors import DataError
from atropos_cli.io.append import atomic_write, write_orders
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.remote import make_folder
from atropos_cli.io.rundir import now

_ATTEMPT = re.compile(r"attempt_(\d+)")


def write_job(plan: JobPlan, folder: Path) -> Path:
    """Write job.json; makes the folder."""
    make_folder(folder)
    path = folder / JOB_FILE
    write_orders(path, plan.model_dump_json(indent=2).encode() + b"\n")
    return path


def read_job(path: Path) -> JobPlan:
    """The plan of a job.json. Raises DataError."""
    try:
        return JobPlan.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", hint="give a job's folder or its job.json") from error
    except (ValidationError, OSError) as error:
        raise DataError(f"{path} is not a job plan: {error}") from error


def read_record(path: Path) -> dict[str, Any] | None:
    """A JSON record of the folder, None while it is not there."""
    try:
        return read_object(path)
    except (OSError, ValueError):
        return None


def is_there(path: Path) -> bool:
    """Does it exist? No for what this user may not look at."""
    with contextlib.suppress(OSError):
        return path.exists()
    return False


def attempts(folder: Path) -> list[int]:
    """Numbers of the attempts that left logs, ascending."""
    names = [_ATTEMPT.fullmatch(path.name) for path in (folder / "logs").glob("attempt_*")]
    return sorted(int(match[1]) for match in names if match)


def newest_attempt(folder: Path, *, until: int | None = None) -> int:
    """The number of the newest attempt, or of the newest one up to `until`; 0 before the first."""
    return max((number for number in attempts(folder) if until is None or number <= until), default=0)


def read_end(folder: Path, *, after: int = 0, until: int | None = None) -> dict[str, Any] | None:
    """How the last of the attempts from `after` (without it) to `until` ended: exit.json of another is not ours.

    exit.json is that of the newest attempt; how those before it ended is in events.jsonl.
    """
    ended = _whole(read_record(folder / "exit.json"))
    number = None if ended is None else ended.get("attempt")
    if until is not None and not (isinstance(number, int) and number <= until):
        ended = _noted_end(folder, newest_attempt(folder, until=until))
        number = None if ended is None else ended["attempt"]
    return ended if not isinstance(number, int) or number > after else None


def _whole(ended: dict[str, Any] | None) -> dict[str, Any] | None:
    """The record of an end; None for one that does not say how it ended."""
    if ended is None or type(ended.get("code")) is not int:
        return None
    return ended if type(ended.get("restarts", 0)) is int else {**ended, "restarts": 0}


def _noted_end(folder: Path, attempt: int) -> dict[str, Any] | None:
    found = None
    with contextlib.suppress(OSError), (folder / "events.jsonl").open(errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == "exit" and event.get("attempt") == attempt:
                    found = _whole(event)
    return found


class JobFolder:
    """The folder during one attempt. Making it clears what the attempt before left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt = newest_attempt(folder) + 1
        self.logs = folder / "logs" / f"attempt_{self.attempt}"
        self.logs.mkdir(parents=True)
        latest = folder / "logs" / "latest"
        with contextlib.suppress(OSError):  # a file system without links
            latest.unlink(missing_ok=True)
            latest.symlink_to(self.logs.name)
        for name in ("endpoints", "status"):
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(exist_ok=True)
        (folder / "exit.json").unlink(missing_ok=True)
        self._started = time.time()

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def event(self, event: str, **fields: Any) -> None:
        """Append to events.jsonl. A disk that is full does not stop the watching."""
        record = {"time": now(), "attempt": self.attempt, "event": event, **fields}
        with contextlib.suppress(OSError), (self.folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def endpoint(self, name: str) -> dict[str, Any] | None:
        return read_record(self.folder / "endpoints" / f"{name}.json")

    def status(self, name: str) -> dict[str, Any] | None:
        return read_record(self.folder / "status" / f"{name}.json")

    def tail(self, name: str, lines: int = 10) -> list[str]:
        """The last lines that a component printed."""
        try:
            with self.log(name).open("rb") as file:
                file.seek(max(0, self.log(name).stat().st_size - 16384))
                return file.read().decode(errors="replace").splitlines()[-lines:]
        except OSError:
            return []

    def finish(self, record: dict[str, Any]) -> None:
        """Write exit.json."""
        full = {"attempt": self.attempt, **record, "seconds": round(time.time() - self._started, 2), "ended": now()}
        atomic_write(self.folder / "exit.json", json.dumps(full, indent=2).encode() + b"\n")
