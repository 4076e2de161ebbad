"""Submit a prepared SLURM job, or show what would be submitted; print how jobs stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from atropos_cli.console.ending import end, shell
from atropos_cli.console.output import Output
from atropos_cli.console.session import Session
from atropos_cli.errors import ExitCode, LaunchError

if TYPE_CHECKING:
    from atropos_cli.builtin.slurm.launcher import SlurmLauncher
    from atropos_cli.cli.slurmjobs import Prepared, Request
    from atropos_cli.cli.slurmview import Submitted


@dataclass(frozen=True, slots=True)
class Manner:
    """check: let the command check itself first. wait: for the job's end."""

    check: bool = True
    wait: bool = False
    dry_run: bool = False
    as_json: bool = False


def carry_on(session: Session, launcher: SlurmLauncher, request: Request, manner: Manner) -> int:
    """Prepare, check, and show or submit."""
    from atropos_cli.cli import slurmjobs

    prepared = slurmjobs.prepare(request, launcher.config)
    launcher.render(prepared.spec)  # complains before anything else is done
    for note in prepared.notes:
        session.out.note(note)
    if manner.check:
        slurmjobs.check_command(prepared, serve=request.serve is not None)
    if manner.dry_run:
        return show(session.out, launcher, prepared, as_json=manner.as_json)
    job = submit_prepared(launcher, prepared)
    if not manner.wait:
        _print_submitted(session.out, job, as_json=manner.as_json)
        return ExitCode.OK
    session.out.note(f"job {job.id} -> {job.folder}")
    return wait_for(session.out, launcher, job, as_json=manner.as_json)


def submit_prepared(launcher: SlurmLauncher, prepared: Prepared) -> Submitted:
    """Write the job's folder and submit it."""
    from atropos_cli.cli.slurmjobs import stamp
    from atropos_cli.cli.slurmview import Submitted, read_submitted, remember, view
    from atropos_cli.jobs.folder import write_job

    if (prepared.folder / "submitted.json").exists():
        before = read_submitted(prepared.folder)
        state = view(before, launcher)["state"]
        if state in ("pending", "running"):
            raise LaunchError(
                f"{prepared.folder} belongs to job {before.id}, which is {state}",
                hint=f"atropos slurm cancel {before.id}, or give another --output",
            )
    launcher.write(prepared.spec)
    write_job(prepared.plan, prepared.folder)
    job = Submitted(launcher.submit(prepared.spec), prepared.plan.name, prepared.folder)
    remember(job, stamp())
    return job


def show(out: Output, launcher: SlurmLauncher, prepared: Prepared, *, as_json: bool) -> int:
    """What would be written and called, and what SLURM says of it."""
    import shlex
    import shutil

    from atropos_cli.builtin.slurm.client import NoCluster

    for doubt in launcher.doubts(prepared.spec):
        out.warning(doubt, "work on a disk that all nodes share, or name one by --folder")
    script = launcher.render(prepared.spec)
    call = launcher.command(prepared.spec)
    verdict: str | None = None
    failure: LaunchError | None = None
    if shutil.which("sbatch"):
        try:
            verdict = launcher.test(prepared.spec)
        except NoCluster as error:
            verdict = f"not asked; {error.message.splitlines()[0]}"
        except LaunchError as error:
            failure = error
    folders = [str(path) for path in launcher.folders(prepared.spec)]
    if as_json:
        found = {"script": script, "plan": prepared.plan.model_dump(mode="json"), "call": call, "folders": folders}
        out.json({**found, "test_only": verdict or (failure.message if failure else None)})
    else:
        out.data(f"# folders: {' '.join(folders)}\n# {prepared.folder / 'job.sbatch'}\n{script}")
        out.data(f"# {prepared.folder / 'job.json'}\n{prepared.plan.model_dump_json(indent=2)}\n")
        out.data(f"# call\n{shlex.join(call)}")
        out.data(f"# sbatch --test-only: {verdict or failure or 'sbatch is not on this machine'}")
    if failure is not None:
        raise failure
    return ExitCode.OK


def _print_submitted(out: Output, job: Submitted, *, as_json: bool) -> None:
    if as_json:
        script = str(job.folder / "job.sbatch")
        out.json({"id": job.id, "name": job.name, "folder": str(job.folder), "script": script})
        return
    out.note(f"folder {job.folder}")
    for words in ("status", "cancel"):
        out.note(f"  atropos slurm {words} {job.id}")
    end(out, f"job {job.id}", shell("slurm", "logs", "-f", job.id), data=True)


def wait_for(out: Output, launcher: SlurmLauncher, job: Submitted, *, as_json: bool) -> int:
    """Until the job has ended; exits with its code."""
    from atropos_cli.cli.slurmwait import watch

    found = watch(job, launcher, out.note)
    if as_json:
        out.json(found)
    code = found["exit_code"]
    if found["state"] == "finished":
        return ExitCode.OK
    out.error(f"job {job.id} {found['state']}: {found['reason'] or 'no reason known'}", f"atropos slurm logs {job.id}")
    raise typer.Exit(code or ExitCode.LAUNCH)


def print_status(out: Output, found: dict[str, Any]) -> None:
    """A job's view as text."""
    keys = ("id", "name", "folder", "state", "reason", "exit_code", "attempt", "slurm_state", "nodes", "run_time")
    out.details({key: str(found[key]) for key in (*keys, "merged") if found.get(key) not in (None, "")})
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
