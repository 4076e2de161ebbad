"""`atropos run RUN/plan.json`: carry out a plan that another command wrote (a run, or a job). What a cluster calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.cli.jobs import Placement, carry_out_job, is_job
from atropos_cli.cli.runs import carry_out, print_plan
from atropos_cli.console.commands import JsonOption
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import AtroposError, DataError, UsageError
from atropos_cli.redaction import MARK

if TYPE_CHECKING:
    from atropos_cli.domain.plan import ComponentRef, Plan


def run(
    ctx: typer.Context,
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A run folder, its plan.json or job.json.", show_default=False)
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew instead of going on with what is there.")
    ] = False,
    on: Annotated[
        Placement, typer.Option("--on", help="Where the components of a job run: here, or as steps of this SLURM job.")
    ] = Placement.local,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Carry out a plan.json in its folder, or a job.json; a run that was begun there is gone on with."""
    from atropos_cli.io.rundir import read_plan

    session = session_of(ctx)
    path = plan
    if plan.is_dir():
        path = plan / (
            "job.json" if not (plan / "plan.json").exists() and (plan / "job.json").exists() else "plan.json"
        )
    if is_job(path):
        if overwrite:
            raise UsageError("--overwrite is for runs; a job begins anew by itself")
        return carry_out_job(path, session, on=on.value, dry_run=dry_run, as_json=as_json)
    command = command_of_plan(path)
    if command == "train":
        return _train(path, session, overwrite=overwrite, dry_run=dry_run, as_json=as_json)
    found = read_plan(path)
    if MARK in found.model_dump_json():
        raise DataError(
            f"{path} is without a secret that the run was made with, so it cannot be carried out from there",
            hint="give the first command again, with --resume",
        )
    warn_of_other_versions(found, session)
    if dry_run:
        print_plan(found, session.out, as_json=as_json)
        return 0
    return carry_out(found, path.parent, session, as_json=as_json, resume=not overwrite, overwrite=overwrite)


def command_of_plan(path: Path) -> str:
    """Which command a plan file is for; "gen" for what cannot be read, whose reader then says why."""
    from atropos_cli.io.rundir import stored_command

    return stored_command(path) or "gen"


def _train(path: Path, session: Session, *, overwrite: bool, dry_run: bool, as_json: bool) -> int:
    from atropos_cli.cli.commands.train import carry_out_training, print_train_plan
    from atropos_cli.training.build import derived, make_trainer
    from atropos_cli.training.run import read_train_plan

    plan = read_train_plan(path)
    _, trainer = make_trainer(plan.trainer.name, plan.trainer.config, session.registry)
    if dry_run:
        print_train_plan(plan, derived(trainer, plan), session, as_json=as_json)
        return 0
    return carry_out_training(
        plan, trainer, path.parent, session, as_json=as_json, resume=not overwrite, overwrite=overwrite
    )


def warn_of_other_versions(plan: Plan, session: Session) -> None:
    """Say which components of the plan are installed in another version than it was made with."""
    refs: list[tuple[str, ComponentRef]] = [("environment", plan.environment), ("backend", plan.backend)]
    refs += [("reward", reward) for reward in plan.rewards if reward.dist is not None]
    for kind, ref in refs:
        try:
            installed = session.registry.find(kind, ref.name)  # type: ignore[arg-type]
        except AtroposError:
            continue  # the run itself reports it
        if ref.version and installed.version and ref.version != installed.version:
            session.out.warning(
                f"{kind} {ref.name!r} is {installed.version} here, the plan was made with {ref.version}"
            )
