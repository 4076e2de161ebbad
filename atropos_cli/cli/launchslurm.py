"""`launch-* --slurm`: the same servers as a batch job, which only serves."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.console.session import Session
from atropos_cli.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from atropos_cli.domain.job import JobPlan

_POLL = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """What the job gets of the cluster. gpus: on each node."""

    nodes: int = 1
    gpus: int = 0
    time: str | None = None
    profile: str | None = None
    config: Path | None = None


def submit(session: Session, plan: JobPlan, folder: Path, batch: Batch, *, dry_run: bool, as_json: bool) -> str | None:
    """Submit the servers' job; its id, or None for a dry run, which prints it."""
    from atropos_cli.cli.jobs import show
    from atropos_cli.cli.launchers import make_launcher
    from atropos_cli.config.sizes import job_name, parse_time
    from atropos_cli.domain.job import Resources
    from atropos_cli.jobs import prepare as jobs

    launcher = make_launcher(session, "slurm", (), batch.profile, batch.config)
    resources = Resources(
        nodes=batch.nodes,
        gpus_per_node=batch.gpus,
        time_s=None if batch.time is None else parse_time(batch.time),
    )
    full = launcher.adapt(plan.replace(resources=resources, name=job_name(plan.name), expose=True), folder)
    prepared = jobs.Prepared(full, jobs.spec_of(full, folder), folder)
    launcher.render(prepared.spec)
    if dry_run:
        show(session.out, launcher, prepared, as_json=as_json)
        return None
    return jobs.submit(prepared, launcher)


def wait_ready(session: Session, folder: Path, *, as_json: bool) -> int:
    """Wait until the job's servers are ready; Ctrl-C leaves the job in the queue."""
    from atropos_cli.cli.launchers import make_launcher
    from atropos_cli.cli.servers import announce, failure
    from atropos_cli.jobs.folder import read_job
    from atropos_cli.jobs.status import view
    from atropos_cli.jobs.store import read_submitted
    from atropos_cli.serving.hold import capabilities
    from atropos_cli.serving.state import read_server, write_record

    shown = ""
    while True:
        record = read_server(folder)
        if record is None or record.job_id is None:
            raise LaunchError(f"{folder} has no job")
        if record.state == "ready":
            found = capabilities(read_job(folder / "job.json"), folder, record)
            record = record.replace(ready=time.time(), capabilities=found)
            write_record(folder, record)
            announce(session, record, as_json=as_json, how=f"--stop --name {record.name} stops it.")
            return ExitCode.OK
        if record.state in ("failed", "stopped"):
            raise failure(folder, record)
        job = view(read_submitted(folder), make_launcher(session, "slurm"))
        if job["state"] in ("failed", "cancelled", "finished", "lost"):
            raise LaunchError(
                f"job {record.job_id} {job['state']}: {job['reason'] or 'no reason known'}",
                hint=f"atropos slurm logs {record.job_id}",
            )
        text = f"job {record.job_id} is {job['state']}" + (f": {job['reason']}" if job["reason"] else "")
        if text != shown:
            shown = text
            session.out.note(text)
        time.sleep(_POLL)
