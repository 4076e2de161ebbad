"""A run folder: plan.json, groups.jsonl, failures.jsonl, summary.json, log.jsonl, and its lock."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.rollout import RolloutFailure
from atropos_cli.domain.run import FailureRecord, RunSummary
from atropos_cli.domain.runplan import RunPlan
from atropos_cli.errors import DataError, PlanChanged, RunExists
from atropos_cli.io.append import AppendLog, atomic_write
from atropos_cli.io.jsonvalue import encode, read_object
from atropos_cli.io.remote import make_folder
from atropos_cli.io.runlock import guards, lock, lock_state, unlock
from atropos_cli.paths import real_target
from atropos_cli.redaction import redacted, redacted_json

P = TypeVar("P", bound=BaseModel)


def now() -> str:
    """The time in UTC, ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunDir:
    """An opened, locked run folder. Use `open_run` to make one, and `close` in the end.

    final: the folder whose run this one replaces by `promote`. old_lock_fd: that run's lock, held until then.
    """

    def __init__(self, folder: Path, lock_fd: int, final: Path | None = None, old_lock_fd: int = -1) -> None:
        self.folder = folder
        self.final = final
        self._lock_fd = lock_fd
        self._old_lock_fd = old_lock_fd
        self._failures: AppendLog | None = None
        self._log: AppendLog | None = None
        self.attempt = 1 + _count_starts(folder / "log.jsonl")

    def write_plan(self, plan: RunPlan) -> None:
        """plan.json, with the digest beside the plan."""
        data: JsonDict = redacted_json({"digest": plan.digest, **plan.model_dump(mode="json")})
        atomic_write(self.folder / "plan.json", json.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n")

    def write_summary(self, summary: RunSummary) -> None:
        text = redacted(summary.model_dump_json(indent=2))
        atomic_write(self.folder / "summary.json", text.encode() + b"\n")

    def failure(
        self, group_id: str, task_id: str | None, reason: RolloutFailure, rollout: str | None, *, lost: bool = False
    ) -> None:
        """Append to failures.jsonl. rollout None: the whole group failed. lost: so did all others of the task."""
        record = FailureRecord(
            group_id=group_id,
            task_id=task_id,
            rollout=rollout,
            stage=reason.stage,
            type=reason.type,
            message=reason.message,
            place=reason.place,
            attempt=self.attempt,
            lost=lost or None,
            time=now(),
        )
        if self._failures is None:
            path = self.folder / "failures.jsonl"
            _end_line(path)
            self._failures = AppendLog(path, fsync="interval")
        self._failures.write(encode(record) + b"\n")

    def log(self, event: str, **fields: Any) -> None:
        """Append an event to log.jsonl."""
        if self._log is None:
            path = self.folder / "log.jsonl"
            _end_line(path)
            self._log = AppendLog(path, fsync="never")
        record = redacted_json({"time": now(), "event": event, **fields})
        self._log.write(json.dumps(record, ensure_ascii=True).encode() + b"\n")

    def check_present(self) -> None:
        """Raise DataError when the folder is no longer where it was: what is written goes to files nobody finds."""
        if self._lock_fd >= 0 and not guards(self._lock_fd, self.folder / "lock"):
            raise DataError(
                f"{self.folder} was moved or removed while the run wrote into it",
                hint="if it was moved, continue there with --resume --output FOLDER; removed data is lost",
            )

    def promote(self) -> None:
        """Put an --overwrite run in the place of the old one, now that it ended well."""
        if self.final is None:
            return
        self.check_present()
        old = self.final.with_name(f".{self.final.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if self.final.exists():
            self.final.rename(old)
        self.folder.rename(self.final)
        self.folder, self.final = self.final, None
        shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        """Close the files and release the lock. Safe to call twice."""
        for file in (self._failures, self._log):
            if file is not None:
                file.close()
        self._failures = self._log = None
        if self._lock_fd >= 0:
            if not holds_run(self.folder):
                self._remove_empty()
            unlock(self._lock_fd)
            self._lock_fd = -1
        if self._old_lock_fd >= 0:
            unlock(self._old_lock_fd)
            self._old_lock_fd = -1

    def _remove_empty(self) -> None:
        """A run that never began leaves nothing behind, so that the same command can be given again."""
        with contextlib.suppress(OSError):
            for name in ("log.jsonl", "lock"):
                (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()


def open_run(folder: Path, *, resume: bool = False, overwrite: bool = False) -> RunDir:
    """Lock a run folder for writing; make it when it is not there.

    A folder that holds a run needs resume (go on) or overwrite (a new run is written beside it and takes
    its place when it ends well). An unfinished one of that kind is neither thrown away when it is a training
    run, nor passed over by resume. Raises RunExists, RunLocked, or DataError for a path that is no folder.
    """
    folder = real_target(folder)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file, not a run folder", hint="give another --output")
    begun = holds_run(folder)
    if begun and overwrite:
        return _open_beside(folder)
    if begun and resume:
        check_alone(folder)
    elif begun:
        raise RunExists(
            f"{folder} already holds a run",
            hint="--resume continues it, --overwrite replaces it, --output names another folder",
        )
    elif not resume and folder.exists() and any(p.name not in ("lock", "log.jsonl") for p in folder.iterdir()):
        raise RunExists(f"{folder} is not empty and holds no run", hint="give another --output")
    _make(folder)
    held = lock(folder)
    if holds_run(folder) and not resume:
        os.close(held)
        raise RunExists(f"{folder} already holds a run", hint="another process was faster; --resume continues it")
    return RunDir(folder, held)


def _open_beside(final: Path) -> RunDir:
    """A run that will replace the one in `final`, whose lock is held as long as this one is open."""
    old = lock(final)
    try:
        folder = replacement(final)
        if (folder / "plan.json").exists():
            os.close(lock(folder))
        if holds_training(folder):
            raise RunExists(
                f"{folder} holds an unfinished run that an earlier --overwrite began",
                hint=f"--resume --output {folder} continues it; remove {folder} to start again",
            )
        shutil.rmtree(folder, ignore_errors=True)
        _make(folder)
        return RunDir(folder, lock(folder), final, old)
    except BaseException:
        unlock(old)
        raise


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as error:
        raise DataError(f"{folder} cannot be made: {error.strerror}", hint="give another --output") from error


def holds_run(folder: Path) -> bool:
    """Has a run begun in this folder?"""
    return (folder / "plan.json").exists() or any(folder.glob("groups.jsonl*"))


def replacement(folder: Path) -> Path:
    """Where --overwrite writes the run that takes this one's place when it is done."""
    return folder.with_name(f"{folder.name}.new")


def where_it_stands(folder: Path, *, overwrite: bool) -> Path:
    """Where a run that goes to `folder` is: beside it, as long as --overwrite has not put it in the old one's place."""
    beside = replacement(folder)
    return beside if overwrite and holds_run(folder) and holds_run(beside) else folder


def check_alone(folder: Path) -> None:
    """Refuse to go on with a run beside which --overwrite left another: nobody knows which is meant."""
    beside = replacement(folder)
    if holds_training(beside) or _holds_groups(beside):
        raise RunExists(
            f"which run is meant? {beside} holds an unfinished one, started by --overwrite to replace {folder}",
            hint=f"--resume --output {beside} continues the new run; remove {beside} to continue the old one",
        )


def holds_training(folder: Path) -> bool:
    """Has a training run got anywhere here: a step, a group, a checkpoint?"""
    if stored_command(folder / "plan.json") != "train":
        return False
    if any((folder / "checkpoints").glob("step-*")) or (folder / "model").exists() or _holds_groups(folder):
        return True
    with contextlib.suppress(OSError), (folder / "metrics.jsonl").open("rb") as file:
        return any(b'"kind": "train"' in line for line in file)
    return False


def being_written(folder: Path) -> bool:
    """Does a process hold the run's lock? True as well where the file system does not tell."""
    return lock_state(folder) in ("held", "unknown")


def _holds_groups(folder: Path) -> bool:
    """Is a group stored? The index tells nothing: it has a header before the first group."""
    return any(path.stat().st_size for path in folder.glob("groups.jsonl*") if path.suffix != ".idx")


def read_plan(path: Path) -> Plan:
    """The plan of a plan.json; of a training run that of its rollouts. Raises DataError naming the file."""
    return read_stored(path, Plan, what="a plan", hint="give a run folder's plan.json")


def stored_command(path: Path) -> str | None:
    """Which command a plan.json is of; None for what cannot be read, whose reader then says why."""
    try:
        command = read_object(path).get("command")
    except (OSError, ValueError):
        return None
    return command if isinstance(command, str) else None


def read_stored(path: Path, kind: type[P], *, what: str, hint: str) -> P:
    """A plan that write_plan wrote. Raises DataError saying that the file is not there, or is not `what`."""
    try:
        data = read_object(path)
        data.pop("digest", None)
        if kind is Plan and isinstance(data.get("rollouts"), dict):
            data = data["rollouts"]
        return kind.model_validate(data)
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", hint=hint) from error
    except (ValidationError, ValueError, RecursionError, OSError) as error:
        raise DataError(f"{path} is not {what}: {error}") from error


def check_same_plan(old: Plan, new: Plan, folder: Path) -> None:
    """Refuse to mix groups of two plans in one file. Raises PlanChanged with the differing keys.

    A plan that left the model to the server (one that a launcher wrote and nobody began) agrees with any model.
    """
    if old.model is None:
        old = old.model_copy(update={"model": new.model})
    check_same_identity(old, new, folder)


def check_same_identity(old: RunPlan, new: RunPlan, folder: Path) -> None:
    """Refuse to go on with a run under another plan. Raises PlanChanged with the differing keys."""
    old, new = old.beside(new), new.beside(old)
    if old.digest == new.digest:
        return
    lines = [
        f"  {key}: {a!r} in the run, {b!r} now"
        for key, a, b in _differences(old.identity(), redacted_json(new.identity()))
    ]
    if not lines:
        return  # the stored one is without its secrets
    raise PlanChanged(
        f"{folder} was started with another plan:\n" + "\n".join(lines),
        hint="repeat the original options, or give another --output",
    )


def _differences(old: Any, new: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        found: list[tuple[str, Any, Any]] = []
        for name in sorted(old.keys() | new.keys()):
            found += _differences(old.get(name), new.get(name), f"{key}.{name}" if key else name)
        return found
    return [] if old == new else [(key, old, new)]


def _end_line(path: Path) -> None:
    """A crash may leave half a line in a side file; end it, so that the next record stands on its own."""
    if path.exists() and path.stat().st_size:
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def _count_starts(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(1 for line in file if b'"event": "started"' in line)
