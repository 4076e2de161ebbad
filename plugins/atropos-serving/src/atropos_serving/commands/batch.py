"""`launch-* --slurm`: the same servers as a batch job, which only serves."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import AtroposError
from atropos_cli.sdk.commands import ExitCode, Session
from atropos_cli.sdk.launchers import LaunchError

if TYPE_CHECKING:
    from atropos_cli.sdk.launchers import JobPlan
    from atropos_cli.sdk.serving import ServerRecord

_POLL = 1.0
_WAITING = ("pending", "running")


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
    from atropos_cli.sdk.jobs import Prepared, make_launcher, show, spec_of
    from atropos_cli.sdk.jobs import submit as submit_job
    from atropos_cli.sdk.launchers import Resources, job_name, parse_time

    launcher = make_launcher(session, "slurm", (), batch.profile, batch.config)
    resources = Resources(
        nodes=batch.nodes,
        gpus_per_node=batch.gpus,
        time_s=None if batch.time is None else parse_time(batch.time),
    )
    full = launcher.adapt(plan.replace(resources=resources, name=job_name(plan.name), expose=True), folder)
    prepared = Prepared(full, spec_of(full, folder), folder)
    launcher.render(prepared.spec)
    if dry_run:
        show(session.out, launcher, prepared, as_json=as_json)
        return None
    return submit_job(prepared, launcher)


def job_of(session: Session, record: ServerRecord) -> dict[str, Any]:
    """The state of the batch job of a server. Raises AtroposError where there is no launcher for it."""
    from atropos_cli.sdk.jobs import make_launcher, read_submitted, view
    from atropos_cli.sdk.serving import server_folder

    return view(read_submitted(server_folder(record.name)), make_launcher(session, "slurm"))


def current(session: Session, record: ServerRecord) -> ServerRecord:
    """The record of a server as SLURM has it: queued again, or gone without having left a word."""
    if record.launcher != "slurm":
        return record
    try:
        job = job_of(session, record)
    except AtroposError:
        return record
    return judged(record, job)


def judged(record: ServerRecord, job: dict[str, Any]) -> ServerRecord:
    """The record, with what its job's view says of it."""
    from atropos_serving.hold import STOPPED

    state, code, reason = job["state"], job["exit_code"], job["reason"]
    if state == "unknown":
        return record.replace(reason=reason)
    if state == "running":
        return record if record.state in ("starting", "ready") else record.replace(state="starting", code=None)
    if state == "pending":
        return record.replace(state="starting", urls=(), code=None, reason=reason)
    over = "gone" if state == "lost" else "stopped" if state != "failed" or code in STOPPED else "failed"
    return record.replace(state=over, code=code, reason=reason)


def wait_ready(session: Session, folder: Path, *, as_json: bool) -> int:
    """Wait until the job's servers are ready; Ctrl-C leaves the job in the queue."""
    from atropos_cli.sdk.jobs import read_job
    from atropos_cli.sdk.serving import read_server, write_record
    from atropos_serving.commands.servers import announce, failure
    from atropos_serving.hold import capabilities

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
        job = job_of(session, record)
        if job["state"] not in (*_WAITING, "unknown"):
            ended = read_server(folder) or record
            if ended.state in ("failed", "stopped"):
                raise failure(folder, ended)
            raise LaunchError(
                f"job {record.job_id} {job['state']}: {job['reason'] or 'no reason known'}",
                hint=f"atropos slurm logs {record.job_id}",
            )
        text = f"job {record.job_id} is {job['state']}" + (f": {job['reason']}" if job["reason"] else "")
        if text != shown:
            shown = text
            session.out.note(text)
        time.sleep(_POLL)
