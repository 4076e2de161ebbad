"""Jobs in tmux: they go on after logout, can be looked at, and leave a log and an exit code behind.

A job's files lie in <run>/tmux: start.json, job.sh (what tmux starts), log.txt, running.json, exit.json.
How a job stands is read from them, not asked of tmux: that works also when the tmux server is gone. Which
folder belongs to which job is noted below ~/.local/state/atropos/tmux/SOCKET/.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import Config, Field
from atropos_cli.sdk.code import code_of
from atropos_cli.sdk.data import file_lock, replacing
from atropos_cli.sdk.launchers import SETUP_ENDED, JobSpec, JobStatus, Launcher, LaunchError, behind_setup
from atropos_tmux import pane
from atropos_tmux.client import Tmux, job_environment, session_name
from atropos_tmux.gpus import free_gpus

SETUP_FILE = "setup.json"
_START_TIMEOUT = 20.0
_TAIL = 8192
_END: dict[str, type | tuple[type, ...]] = {"code": int, "stopped": bool, "signal": (str, type(None))}
_RUNNING: dict[str, type | tuple[type, ...]] = {"host": str, "pid": int, "born": str}
"""The keys of exit.json and running.json that we read."""


class TmuxConfig(Config):
    socket: str = Field(
        default="atropos", pattern=r"^[A-Za-z0-9_-]{1,40}$", description="Name of the tmux server's socket (tmux -L)."
    )
    grace: float = Field(default=60.0, ge=0, description="Seconds a job gets to stop before it is killed.")


class TmuxLauncher(Launcher):
    """Starts each job in a tmux session of its own, on a server of our own. A job's id is its session's name."""

    name: ClassVar[str] = "tmux"
    Config: ClassVar[type[TmuxConfig]] = TmuxConfig

    def __init__(self, config: TmuxConfig | None = None) -> None:
        super().__init__(config or TmuxConfig())
        self.tmux = Tmux(self.config.socket)

    @property
    def state_folder(self) -> Path:
        """Where jobs are noted, per socket and host."""
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return Path(base) / "atropos" / "tmux" / str(self.config.socket)

    def render(self, job: JobSpec) -> str:
        """The script that tmux starts. What the job does stands in start.json, which no shell reads."""
        words = (sys.executable, str(Path(pane.__file__).resolve()), str(_folder(job)))
        line = " ".join(shlex.quote(word) for word in words)
        return f"#!/bin/sh\n# One atropos job; what it runs is in start.json beside this file.\nexec {line}\n"

    def start_of(self, job: JobSpec) -> dict[str, Any]:
        """The content of start.json: what is run, and where."""
        cwd = job.cwd or str(Path.cwd())
        argv = [sys.executable, "-m", "atropos_cli", *job.words()]
        found: dict[str, Any] = {"name": job.name, "argv": argv, "cwd": cwd}
        if job.setup:
            found |= {"argv": behind_setup(_folder(job) / SETUP_FILE, argv), "setup": list(job.setup)}
        if job.command and (code := code_of(Path(cwd))) is not None:
            found["code"] = code.model_dump(mode="json")
        if (count := job.resources.get("gpus_per_node")) and isinstance(count, int):
            chosen = free_gpus(count, self._claimed())
            found |= {"gpus": [gpu.uuid for gpu in chosen], "visible": ",".join(gpu.token for gpu in chosen)}
        return found

    def known(self, folder: Path) -> dict[str, Any]:
        """The code and the GPUs of the job, as start.json has them."""
        start = _read(folder / "start.json") or {}
        return {key: start[key] for key in ("code", "gpus") if start.get(key)}

    def working_in(self) -> list[tuple[str, Path]]:
        """(name, working directory) of every job that runs or is about to."""
        found = []
        for session, folder in self.jobs():
            start = _read(folder / "start.json", cwd=str)
            if start is not None and self._status(session, folder).state in ("running", "pending"):
                found.append((session, Path(start["cwd"])))
        return found

    def _claimed(self) -> dict[str, str]:
        """The GPUs of running jobs, by UUID: a program that loads its model does not show on its GPU yet."""
        found: dict[str, str] = {}
        for session, folder in self.jobs():
            start = _read(folder / "start.json") or {}
            if isinstance(start.get("gpus"), list) and self._status(session, folder).state in ("running", "pending"):
                found |= dict.fromkeys(start["gpus"], session)
        return found

    def submit(self, job: JobSpec) -> str:
        """Start the job; returns once its command runs. Raises LaunchError, also when the name is in use."""
        session = session_name(job.name)
        if job.after or job.resources.get("array"):
            raise LaunchError("a tmux job can neither wait for another job nor be an array of shards")
        if not Path(job.cwd or ".").is_dir():
            raise LaunchError(f"the job's working directory {job.cwd} is not there")
        self.tmux.call("-V")  # no tmux: say so before anything is written
        with self._locked():
            self._free(session)
            start = self.start_of(job)
            folder = _folder(job)
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("running.json", "exit.json", "log.txt"):
                (folder / name).unlink(missing_ok=True)
            _write(folder / "start.json", json.dumps(start, indent=2))
            if job.setup:
                _write(folder / SETUP_FILE, json.dumps(list(job.setup)))
            masked = {"CUDA_VISIBLE_DEVICES": start["visible"]} if "visible" in start else {}
            _write(folder / "env.json", json.dumps({**job_environment(os.environ), **job.env, **masked}), mode=0o600)
            _write(folder / "job.sh", self.render(job), mode=0o700)
            self.tmux.start(session, "/bin/sh", str(folder / "job.sh"))
            _write(self.state_folder / f"{session}.json", json.dumps({"folder": str(folder), "name": job.name}))
        self._await_start(session, folder)
        return session

    def status(self, job_id: str) -> JobStatus:
        """The state from the job's files; its folder separates it from a later job of the same name."""
        try:
            folder = self.folder(job_id)
        except LaunchError as error:
            return JobStatus(id=job_id, state="unknown", reason=error.message)
        found: JobStatus = self._status(job_id, folder).replace(identity={"folder": str(folder)})
        return found

    def jobs(self) -> list[tuple[str, Path]]:
        """(id, folder) of every job that is noted, the oldest first."""
        found = []
        for path in self.state_folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                folder = _noted(path)
                found.append((path.stat().st_mtime_ns, path.stem, folder))
        return [(session, folder) for _, session, folder in sorted(found)]

    def folder(self, job_id: str) -> Path:
        """The folder of a job's files. Raises LaunchError for a job that is not known here."""
        session = session_name(job_id)
        with contextlib.suppress(OSError, ValueError, KeyError):
            return _noted(self.state_folder / f"{session}.json")
        known = [name for name, _ in self.jobs()]
        raise LaunchError(
            f"there is no tmux job {job_id!r} on socket {self.config.socket!r}",
            hint=f"there are: {', '.join(known[-10:])}" if known else "atropos tmux run starts one",
        )

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        """The job's output from its first byte; with follow until the job ends."""
        folder = self.folder(job_id)
        rest = b""
        with _opened(folder / "log.txt") as file:
            while True:
                over = self._status(job_id, folder).state not in ("running", "pending")
                while block := file.read(1 << 16):
                    *lines, rest = (rest + block).split(b"\n")
                    yield from (line.decode("utf-8", "replace") for line in lines)
                if over or not follow:
                    break
                time.sleep(0.2)
        if rest:
            yield rest.decode("utf-8", "replace")

    def cancel(self, job_id: str) -> None:
        """Ask the job to stop, kill it after the grace time, end its session."""
        session, folder = session_name(job_id), self.folder(job_id)
        for number, patience in ((signal.SIGTERM, self.config.grace), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0)):
            pid = _alive(folder)
            if pid is None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + patience
            while _alive(folder) is not None and time.monotonic() < deadline:
                time.sleep(0.05)
        self.tmux.kill(session)

    def forget(self, job_id: str) -> None:
        """Drop the note of an ended job; its folder stays. Raises LaunchError while it runs."""
        session, folder = session_name(job_id), self.folder(job_id)
        if self._status(job_id, folder).state in ("running", "pending"):
            raise LaunchError(f"job {session!r} is still running", hint=f"atropos tmux stop {session}")
        self.tmux.kill(session)
        (self.state_folder / f"{session}.json").unlink(missing_ok=True)

    def _status(self, job_id: str, folder: Path) -> JobStatus:
        end = _read(folder / "exit.json", **_END)
        if end is not None:
            code = int(end["code"])
            state = "cancelled" if end["stopped"] and code else "failed" if code else "finished"
            reason = f"ended by {end['signal']}" if end["signal"] else _setup_that_failed(folder) if code else None
            return JobStatus.model_validate({"id": job_id, "state": state, "exit_code": code, "reason": reason})
        running = _read(folder / "running.json", **_RUNNING)
        if running is None:
            seen = self.tmux.pane(session_name(job_id))
            if seen is not None and not seen[1]:
                return JobStatus(id=job_id, state="pending")
            return JobStatus(id=job_id, state="failed", reason=f"it never began; see {folder}")
        if running["host"] != socket.gethostname():
            return JobStatus(id=job_id, state="unknown", reason=f"it was started on {running['host']}", answered=False)
        if _alive(folder) is not None:
            return JobStatus(id=job_id, state="running")
        end = _read(folder / "exit.json", **_END)  # it may have ended between the two looks
        if end is not None:
            return self._status(job_id, folder)
        return JobStatus(id=job_id, state="failed", reason="it ended without a trace: killed, or the machine restarted")

    def _free(self, session: str) -> None:
        """Make the name free: an ended job gives it up, a running one does not."""
        if self.tmux.has(session):
            seen = self.tmux.pane(session)
            if seen is not None and not seen[1]:
                raise LaunchError(
                    f"a tmux job {session!r} is running already",
                    hint=f"give another --name, or atropos tmux stop {session}",
                )
            self.tmux.kill(session)

    def _await_start(self, session: str, folder: Path) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while not (folder / "running.json").exists() and not (folder / "exit.json").exists():
            seen = self.tmux.pane(session)
            if seen is None or seen[1] or time.monotonic() > deadline:
                (folder / "env.json").unlink(missing_ok=True)
                shown = self.tmux.screen(session) if seen is not None else "the session is gone"
                raise LaunchError(f"tmux job {session!r} did not start: {shown[-500:]}", hint=f"see {folder}")
            time.sleep(0.02)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.state_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with file_lock(self.state_folder / "lock"):
                yield
        except OSError as error:
            raise LaunchError(f"{error.filename}: {error.strerror or error}") from error


def _setup_that_failed(folder: Path) -> str | None:
    """The line of the set-up with which the job ended."""
    if not (_read(folder / "start.json") or {}).get("setup"):
        return None
    with contextlib.suppress(OSError):
        for line in (folder / "log.txt").read_bytes()[-_TAIL:].decode("utf-8", "replace").splitlines():
            if line.startswith(f"atropos: {SETUP_ENDED}"):
                return line.removeprefix("atropos: ")
    return None


def _noted(path: Path) -> Path:
    """The folder that a note names. Raises OSError, ValueError or KeyError."""
    found = json.loads(path.read_bytes())
    if not isinstance(found, dict) or not isinstance(found["folder"], str):
        raise ValueError(f"{path} names no folder")
    return Path(found["folder"])


def _folder(job: JobSpec) -> Path:
    return Path(job.run).absolute() / "tmux"


def _alive(folder: Path) -> int | None:
    """The pid of a job's pane program while it runs here."""
    running = _read(folder / "running.json", **_RUNNING)
    if running is None or running["host"] != socket.gethostname():
        return None
    pid = int(running["pid"])
    return pid if pane.birth(pid) == running["born"] else None


def _read(path: Path, **kinds: type | tuple[type, ...]) -> dict[str, Any] | None:
    """A record with at least these keys, of these types; None for one that is not there, or damaged."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and all(isinstance(found.get(key), kind) for key, kind in kinds.items()):
            return found
    return None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise LaunchError(f"the job's log {path} is gone") from error


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    with replacing(path, mode=mode, sync=False) as file:
        file.write(text.encode())
