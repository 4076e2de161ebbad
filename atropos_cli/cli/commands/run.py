"""`atropos run RUN/plan.json`: carry out a plan that another command wrote (a run, or a job). What a cluster calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.jobs import Placement, carry_out_job, is_job
from atropos_cli.cli.passes import make_part
from atropos_cli.cli.runs import carry_out, print_plan
from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, DataError, UsageError
from atropos_cli.ports.plans import StoredRun
from atropos_cli.redaction import MARK

if TYPE_CHECKING:
    from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import ComponentRef


class RunOptions(CommandOptions):
    """How a plan is carried out."""

    overwrite: bool = option(False, "Begin anew instead of resuming what is there.")
    base_url: tuple[str, ...] = option((), "Servers, instead of the plan's.", metavar="URL")
    trajectories: str | None = option(None, "Trajectory server, instead of the plan's.", metavar="URL")
    processes: int = option(1, "Processes of a training on this host.", metavar="N", ge=1)
    output: Path | None = option(None, "The run's folder.", hidden=True, metavar="FOLDER")
    begin: str | None = option(None, "new, resume or overwrite.", hidden=True)
    on: Placement = option(Placement.local, "Where the components of a job run: here, or as steps of this SLURM job.")
    dry_run: bool = option(False, "Print the plan and stop.")


@with_flags("run", RunOptions, own_only=True)
def run(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A run folder, its plan.json or job.json.", show_default=False)
    ],
    *,
    options: RunOptions,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """Carry out a plan.json in its folder, or a job.json; an unfinished run there is resumed."""
    from atropos_cli.io.rundir import read_plan, stored_command
    from atropos_cli.plugins.storedplans import plan_runner

    overwrite, dry_run = options.overwrite, options.dry_run
    path = plan = _own_shard(plan)
    if plan.is_dir():
        path = plan / (
            "job.json" if not (plan / "plan.json").exists() and (plan / "job.json").exists() else "plan.json"
        )
    if is_job(path):
        if overwrite:
            raise UsageError("--overwrite is for runs; a job begins anew by itself")
        return carry_out_job(path, session, on=options.on.value, dry_run=dry_run, as_json=as_json)
    command = stored_command(path) or "gen"  # what cannot be read: its reader says why
    if command == "rows":
        if overwrite or dry_run:
            raise UsageError(f"{path} is a part of a command over rows: it is made, or made already")
        return make_part(path, session)
    if command != "gen":
        how: Any = options.begin or ("overwrite" if overwrite else "resume")
        stored = StoredRun(
            path,
            options.output or path.parent,
            urls=options.base_url,
            trajectories=options.trajectories,
            processes=options.processes,
            begin=how,
            dry_run=dry_run,
            as_json=as_json,
        )
        return plan_runner(session.registry, command).run(stored, session)
    found = read_plan(path)
    if MARK in found.model_dump_json():
        raise DataError(
            f"{path} is without a secret that the run was made with, so it cannot be carried out from there",
            hint="give the first command again, with --resume",
        )
    warn_of_other_versions(found, session)
    found = found.replace(backend=found.backend.served(options.base_url))
    if options.trajectories is not None and found.delivery.to is not None:
        found = found.replace(delivery=found.delivery.replace(to=options.trajectories))
    if dry_run:
        print_plan(found, session.out, as_json=as_json)
        return 0
    return carry_out(found, path.parent, session, as_json=as_json, resume=not overwrite, overwrite=overwrite)


def _own_shard(folder: Path) -> Path:
    """In a task of a SLURM array, the shard of a folder of shards that this task executes."""
    index = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    shard = folder / "shards" / index
    folder_of_shards = index.isdecimal() and folder.is_dir() and not (folder / "job.json").exists()
    return shard if folder_of_shards and (shard / "plan.json").exists() else folder


def warn_of_other_versions(plan: Plan, session: Session) -> None:
    """Say which components of the plan are installed in another version than it was made with."""
    refs: list[tuple[str, ComponentRef]] = [("environment", plan.environment), ("backend", plan.backend)]
    refs += [("environment", member.environment) for member in plan.mixture]
    rewards = [*plan.rewards, *(reward for member in plan.mixture for reward in member.rewards)]
    refs += [("reward", reward) for reward in rewards if reward.dist is not None]
    for kind, ref in refs:
        try:
            installed = session.registry.find(kind, ref.name)  # type: ignore[arg-type]
        except AtroposError:
            continue  # the run itself reports it
        if ref.version and installed.version and ref.version != installed.version:
            session.out.warning(
                f"{kind} {ref.name!r} is {installed.version} here, the plan was made with {ref.version}"
            )
