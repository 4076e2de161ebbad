"""What the commands about jobs share: carry out a job plan, wait for it, say how it stands."""

from __future__ import annotations

import os
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from atropos_cli.cli.runs import flattened
from atropos_cli.console.ending import again, end, shell
from atropos_cli.console.session import Session
from atropos_cli.errors import ExitCode
from atropos_cli.jobs.face import Face
from atropos_cli.streams import data_stream

if TYPE_CHECKING:
    from atropos_cli.console.output import Output
    from atropos_cli.jobs.store import Submitted
    from atropos_cli.ports.launcher import Launcher


class Placement(StrEnum):
    """Where the components of a job run."""

    local = "local"
    slurm = "slurm"


def is_job(path: Path) -> bool:
    """Is the file a job plan, and not the plan of a run?"""
    from atropos_cli.io.rundir import stored_command

    command = stored_command(path)
    return path.name == "job.json" if command is None else command == "job"


def carry_out_job(path: Path, session: Session, *, on: str, dry_run: bool = False, as_json: bool = False) -> int:
    """Run a job to its end; exits with the job's own code, which may be any."""
    from atropos_cli.jobs.folder import read_job, read_record
    from atropos_cli.jobs.placing import LocalPlacer, Placer
    from atropos_cli.jobs.shards import enter_shard
    from atropos_cli.jobs.srun import SrunPlacer
    from atropos_cli.jobs.supervisor import run_job

    plan = read_job(path)
    if dry_run:
        data = plan.model_dump(mode="json")
        if as_json:
            session.out.json(data)
        else:
            session.out.details(dict(flattened(data)))
        return 0
    placer: Placer
    if on == Placement.slurm:
        placer = SrunPlacer()
    else:
        placer = LocalPlacer(plan.resources.nodes)
    plan, folder = enter_shard(plan, path.resolve().parent, os.environ)

    def say(text: str) -> None:
        session.out.note(f"{time.strftime('%H:%M:%S')} {text}")

    code = run_job(plan, folder, placer, say)
    if as_json:
        session.out.json(read_record(folder / "exit.json"))
    else:
        following = shell("view", folder) if code == ExitCode.OK else again(session.args)
        end(session.out, f"{plan.name}: exit code {code}", following)
    data_stream().flush()
    # Not ours to translate: the code of a user's program is any number.
    raise typer.Exit(code)


def wait_for(out: Output, launcher: Launcher, job: Submitted, face: Face, *, as_json: bool) -> int:
    """Until the job has ended; exits with its code."""
    from atropos_cli.jobs.follow import watch

    try:
        found = watch(job, launcher, out.note)
    except KeyboardInterrupt:
        out.note(f"job {job.id} keeps running; to stop it: {face.line('cancel', job.id)}")
        raise
    if as_json:
        out.json(found)
    if found["state"] == "finished":
        return ExitCode.OK
    reason = found["reason"] or "no reason known"
    out.error(f"job {job.id} {found['state']}: {reason}", face.line("logs", job.id))
    raise typer.Exit(found["exit_code"] or ExitCode.LAUNCH)


def print_status(out: Output, found: dict[str, Any]) -> None:
    """A job's view as text."""
    keys = ("id", "name", "folder", "state", "reason", "exit_code", "rollout", "slurm_state", "nodes", "run_time")
    if code := found.get("code"):
        where = f", copied to {code['copy_at']}" if code["copy_at"] else ""
        found = {**found, "code": f"{code['commit'] or 'no commit'}{' and changes' if code['changed'] else ''}{where}"}
    shown = (*keys, *sorted(found.keys() - {*keys, "merged", "components", "shards", "hopeless"}), "merged")
    out.details({key: str(found[key]) for key in shown if found.get(key) not in (None, "")})
    rows = []
    for item in found.get("components", []):
        code = "" if item["code"] is None else f" ({item['code']})"
        address = ", ".join(f"{item['host']}:{port}" for port in item["ports"].values())
        rows.append((item["name"], item["state"] + code, item["node"] or "-", address or "-"))
    out.table(rows, header=("component", "state", "node", "address"))
    shards = [
        (
            str(item["shard"]),
            item["state"],
            "-" if item["exit_code"] is None else str(item["exit_code"]),
            item["reason"] or "",
        )
        for item in found.get("shards", [])
    ]
    out.table(shards, header=("shard", "state", "code", "reason"))
