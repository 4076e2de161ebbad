"""The launcher `slurm`: sbatch, scontrol and scancel behind the interface of all launchers."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from atropos_cli.sdk.launchers import (
    JobPlan,
    JobSpec,
    JobState,
    JobStatus,
    Launcher,
    LauncherCapabilities,
    LaunchError,
    LauncherSilent,
    only_here,
)
from atropos_slurm import client, reasons
from atropos_slurm.client import JobRecord
from atropos_slurm.config import SlurmConfig, check_option
from atropos_slurm.container import adapted
from atropos_slurm.examples import examples
from atropos_slurm.script import Ready, ready, render

SCRIPT = "job.sbatch"
_ORDER: tuple[JobState, ...] = ("running", "pending", "failed", "cancelled", "unknown", "finished")
_CANCEL_WAIT = 60.0
_LOST_ANSWER = 20.0
_SILENT_FOR = 3.0
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
log = logging.getLogger("atropos.slurm")


class SlurmLauncher(Launcher):
    """Jobs of a SLURM cluster."""

    name: ClassVar[str] = "slurm"
    capabilities: ClassVar[LauncherCapabilities] = LauncherCapabilities(
        arrays=True, shards=True, nodes=True, dependencies=True, services=True
    )
    asks: ClassVar[str] = "sbatch --test-only"
    Config = SlurmConfig
    config: SlurmConfig

    def __init__(self, config: SlurmConfig) -> None:
        super().__init__(config)
        self._told: set[str] = set()
        self._asked = ""
        self._silence: LauncherSilent | None = None
        self._silent_at = 0.0

    def ready(self, job: JobSpec, *, most_tasks: int | None = None) -> Ready:
        """The job with all directives decided."""
        return ready(job, self.config, most_tasks=most_tasks, environ=os.environ)

    def render(self, job: JobSpec) -> str:
        return render(self.ready(job), self.config.template)

    def adapt(self, plan: JobPlan, folder: Path) -> JobPlan:
        """The plan with the profile's variables, network interface and container."""
        return adapted(plan, self.config, folder)

    def check_option(self, key: str) -> None:
        check_option(key)

    def call(self, job: JobSpec) -> list[str]:
        """The call of sbatch. Everything but the script stands in the script."""
        return ["sbatch", "--parsable", str(Path(job.run) / SCRIPT)]

    def output(self, job: JobSpec, job_id: str, task: int | None = None) -> Path:
        name = job_id.partition(";")[0]
        return Path(job.run) / (f"slurm-{name}.out" if task is None else f"slurm-{name}_{task}.out")

    @classmethod
    def examples(cls) -> tuple[str, ...]:
        return examples()

    def doubts(self, job: JobSpec) -> list[str]:
        """Folders that the nodes do not see, and variables for sbatch that the job does not use."""
        places = {job.run: "the job's folder", job.cwd or job.run: "the working directory"}
        places[job.run] = "the job's folder"
        told: dict[str, list[str]] = {}
        for place, what in places.items():
            if (disk := only_here(Path(place))) is not None:
                told.setdefault(disk, []).append(f"{what} {place}")
        disks = [
            f"{' and '.join(what)}: on a disk of this machine ({disk}), which other nodes do not see; work on a disk "
            "that all nodes share, or name one by --folder"
            for disk, what in told.items()
        ]
        return [*disks, *self.ready(job).left_out]

    def write(self, job: JobSpec) -> Path:
        """Make the folders and write the script."""
        for doubt in self.doubts(job):
            if doubt not in self._told:
                self._told.add(doubt)
                log.warning("warning: %s", doubt)
        most = client.array_limit() if self.ready(job).array else None
        text = render(self.ready(job, most_tasks=most), self.config.template)
        if job.cwd is not None and not Path(job.cwd).is_dir():
            raise LaunchError(f"{job.cwd} is not a folder", hint="submit from a folder that the nodes see")
        Path(job.run).mkdir(parents=True, exist_ok=True)  # SLURM opens the log before the script runs
        path = Path(job.run) / SCRIPT
        path.write_text(text, encoding="utf-8", newline="\n")
        return path

    def verdict(self, job: JobSpec) -> str | None:
        """When SLURM would start the job (`sbatch --test-only`). Raises LaunchError with SLURM's reason why not."""
        if shutil.which("sbatch") is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / SCRIPT
            script.write_text(self.render(job), encoding="utf-8", newline="\n")
            try:
                text = client.call("sbatch", "--test-only", str(script), messages=True)
            except client.NoCluster as error:
                return f"not asked; {error.message.splitlines()[0]}"
            except LaunchError as error:
                hint = error.hint or "ask for less, or name another partition in the profile"
                raise LaunchError(error.message, hint=hint) from error
        return text.strip().removeprefix("sbatch: ")

    def submit(self, job: JobSpec) -> str:
        clusters = self.ready(job).directives.get("clusters", "")
        _check_waits(job, clusters)
        self.write(job)
        script = Path(job.run) / SCRIPT
        try:
            return client.job_id_of(client.call(*self.call(job)))
        except LauncherSilent as error:
            if taken := client.queued_id(script, patience=_LOST_ANSWER, clusters=clusters):
                log.warning("warning: SLURM did not answer, and has the job: %s", taken)
                return taken
            raise LauncherSilent(error.message, hint=error.hint or "try again later") from error
        except LaunchError as error:
            raise LaunchError(error.message, hint=error.hint or f"the script: {script}") from error

    def records(self, job_id: str) -> list[JobRecord]:
        """SLURM's own records, one for each task of an array.

        A controller that is down takes up to a minute to be found silent: not for each job of a list.
        """
        if self._silence is not None and time.monotonic() - self._silent_at < _SILENT_FOR:
            raise LauncherSilent(self._silence.message, hint=self._silence.hint)
        try:
            found = client.show_job(job_id)
        except LauncherSilent as error:
            self._silence, self._silent_at = error, time.monotonic()
            raise
        self._silence = None
        return found

    def status(self, job_id: str) -> JobStatus:
        found = self.records(job_id)
        if not found:
            reason = "SLURM does not know this job (any more)"
            return JobStatus(id=job_id, state="unknown", reason=reason, identity=self._cluster(job_id))
        status = _status(job_id, min(found, key=lambda record: _ORDER.index(record.state)))
        return status.replace(identity={**status.identity, **self._cluster(job_id)})  # type: ignore[no-any-return]

    def _cluster(self, job_id: str) -> dict[str, str]:
        """Which cluster answers: another one has jobs of the same numbers."""
        name = job_id.partition(";")[2]
        if not name:
            self._asked = self._asked or client.cluster_name() or ""
            name = self._asked
        return {"cluster": name} if name else {}

    def tasks(self, job_id: str, count: int) -> dict[int, JobStatus]:
        """The tasks of an array; those that wait share one record, with a range such as 2-7%2."""
        found: dict[int, JobStatus] = {}
        for record in self.records(job_id):
            for part in (record.task or "").partition("%")[0].split(","):
                if (match := _TASKS.fullmatch(part)) is not None:
                    low, high, step = match.groups()
                    for index in range(int(low), min(int(high or low) + 1, count), int(step or 1)):
                        if index not in found or not high:
                            found[index] = _status(job_id, record)
        return found

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        found = self.records(job_id)
        paths = [Path(record.output) for record in found if record.output not in ("", "(null)")]
        if not paths:
            raise LaunchError(f"SLURM does not know where the log of job {job_id} is (any more)")
        for path in paths:
            yield from self._lines(path, job_id, follow)

    def _lines(self, path: Path, job_id: str, follow: bool) -> Iterator[str]:
        while follow and not path.exists() and self.status(job_id).state in ("pending", "running"):
            time.sleep(1)
        if not path.exists():
            raise LaunchError(f"{path} is not there", hint=self.status(job_id).reason)
        with path.open(errors="replace") as file:
            while True:
                line = file.readline()
                if line:
                    yield line.rstrip("\n")
                elif not follow or self.status(job_id).state not in ("pending", "running"):
                    return
                else:
                    time.sleep(1)

    def cancel(self, job_id: str) -> None:
        """Cancel, and wait until SLURM says that it is over: scancel ends with 0 for any number."""
        if not self.records(job_id):
            raise LaunchError(f"SLURM does not know job {job_id}", hint="atropos slurm list")
        cluster, bare = client.on_cluster(job_id)
        client.call("scancel", *cluster, bare)
        deadline = time.monotonic() + _CANCEL_WAIT
        while (state := self.status(job_id).state) in ("pending", "running"):
            if time.monotonic() > deadline:
                raise LaunchError(f"job {job_id} is still {state} {_CANCEL_WAIT:.0f} s after scancel")
            time.sleep(0.2)


def _check_waits(job: JobSpec, clusters: str) -> None:
    """A job waits for jobs of its own cluster: the number alone would name another one there. Raises LaunchError."""
    named = {text.partition(";")[2]: text for text in job.after if ";" in text}
    here = clusters or (client.cluster_name() if named else "")
    for cluster, text in named.items():
        if cluster != here and not client.in_federation(cluster):
            raise LaunchError(
                f"job {text} is on cluster {cluster!r}: this job, for cluster {here!r}, cannot wait for it",
                hint=f"--sbatch clusters={cluster} submits there",
            )


def _status(job_id: str, record: JobRecord) -> JobStatus:
    hopeless = record.state == "pending" and reasons.never(record.reason)
    detail = {"slurm_state": record.slurm_state, "nodes": record.nodes, "run_time": record.run_time}
    return JobStatus(
        id=job_id,
        state=record.state,
        exit_code=_exit_code(record),
        reason=explain(record),
        hopeless=hopeless,
        detail=detail,
        restarts=record.restarts,
        identity=identity(record),
    )


def identity(record: JobRecord) -> dict[str, str]:
    """Facts that separate the job from another of its number. SLURM dates a job from when it was queued last."""
    known = {"name": record.name, "submitted": "" if record.restarts else record.submitted}
    if record.output not in ("", "(null)"):
        known["folder"] = str(Path(record.output).parent)
    return {key: value for key, value in known.items() if value not in ("", "Unknown")}


def explain(record: JobRecord) -> str | None:
    """A record's reason in words."""
    if record.state == "pending":
        return reasons.explain_pending(record.reason or "None")
    if record.state in ("failed", "cancelled"):
        text = reasons.explain_end(record.reason, record.code, record.signal, record.slurm_state)
        return f"{record.slurm_state}, {text}" if text else record.slurm_state
    return None


def _exit_code(record: JobRecord) -> int | None:
    if record.state in ("pending", "running", "unknown"):
        return None
    return record.code if not record.signal or record.code else 128 + record.signal
