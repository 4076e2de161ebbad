"""Jobs as plain processes of this machine, which go on after logout; all that is known of them is in their folders."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from atropos_cli.sdk import Config, Field
from atropos_cli.sdk.launchers import JobSpec, JobStatus, Launcher, LauncherCapabilities, LaunchError

_START = 'setsid "$@" & echo $! >"$0/pid"'
# $0 is the folder, $@ the command: nothing of a job is read by the shell. The trap lets the shell wait for the end.
_SCRIPT = (
    'trap : TERM; "$@" >>"$0/output.log" 2>&1 & wait $!; wait $!; echo $? >"$0/code.tmp"; mv "$0/code.tmp" "$0/code"'
)


class TemplateNameConfig(Config):
    """Each field is a key of --on-option."""

    grace: float = Field(default=60.0, ge=0, description="Seconds a job gets to stop before it is killed.")


class TemplateName(Launcher):
    """A process for a job, or one for each shard of a run. A job's id is its folder."""

    name = "template_name"
    capabilities = LauncherCapabilities(shards=True)
    Config = TemplateNameConfig

    def render(self, job: JobSpec) -> str:
        return "".join(f"{shlex.join(argv)}  # {folder}\n" for folder, argv in job.parts())

    def submit(self, job: JobSpec) -> str:
        if job.after:
            raise LaunchError("these jobs cannot wait for each other")
        for folder, argv in job.parts():
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("code", "cancelled"):
                (folder / name).unlink(missing_ok=True)
            subprocess.run(  # noqa: S603 - the scripts are ours, the rest are their arguments
                ["/bin/sh", "-c", _START, str(folder), "/bin/sh", "-c", _SCRIPT, str(folder), *argv],
                cwd=job.cwd,
                env={**os.environ, **job.env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
        return job.run

    def status(self, job_id: str) -> JobStatus:
        parts = _parts(job_id)
        codes = [int((part / "code").read_text()) if (part / "code").exists() else None for part in parts]
        if any(code is None and _alive(part) for code, part in zip(codes, parts, strict=True)):
            return JobStatus(id=job_id, state="running")
        worst = max((128 if code is None else code for code in codes), default=0)
        if any((part / "cancelled").exists() for part in parts):
            return JobStatus(id=job_id, state="cancelled", exit_code=worst)
        return JobStatus(id=job_id, state="failed" if worst else "finished", exit_code=worst)

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        with contextlib.ExitStack() as stack:
            paths = [part / "output.log" for part in _parts(job_id)]
            files = [stack.enter_context(path.open(errors="replace")) for path in paths if path.exists()]
            while True:
                over = not follow or self.status(job_id).state != "running"
                for file in files:
                    yield from (line.rstrip("\n") for line in file)
                if over:
                    return
                time.sleep(0.2)

    def cancel(self, job_id: str) -> None:
        running = [part for part in _parts(job_id) if _alive(part) and not (part / "code").exists()]
        for number, patience in ((signal.SIGTERM, self.config.grace), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + patience
            for part in running:
                (part / "cancelled").touch()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int((part / "pid").read_text()), number)
            while self.status(job_id).state == "running" and time.monotonic() < deadline:
                time.sleep(0.05)


def _parts(job_id: str) -> list[Path]:
    found = sorted(path.parent for path in (Path(job_id), *Path(job_id).glob("shards/*")) for path in path.glob("pid"))
    if not found:
        raise LaunchError(f"there is no job in {job_id}")
    return found


def _alive(folder: Path) -> bool:
    """Does the process live? One that has ended and was not waited for does not."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{(folder / 'pid').read_text().strip()}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    return False
