"""`atropos run RUN/plan.json`: carry out a plan that another command wrote (a run, or a job). What a cluster calls."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.jobs import Placement, carry_out_job, is_job
from atropos_cli.cli.runs import carry_out, print_plan
from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.commands import JsonOption, with_flags
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, DataError, UsageError
from atropos_cli.redaction import MARK

if TYPE_CHECKING:
    from atropos_cli.domain.plan import ComponentRef, Plan
    from atropos_cli.training.run import Begin


class RunOptions(CommandOptions):
    """How a plan is carried out."""

    overwrite: bool = option(False, "Begin anew instead of resuming what is there.")
    base_url: tuple[str, ...] = option((), "Servers, instead of the plan's.", metavar="URL")
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
    from atropos_cli.io.rundir import read_plan

    overwrite, dry_run, path = options.overwrite, options.dry_run, plan
    if plan.is_dir():
        path = plan / (
            "job.json" if not (plan / "plan.json").exists() and (plan / "job.json").exists() else "plan.json"
        )
    if is_job(path):
        if overwrite:
            raise UsageError("--overwrite is for runs; a job begins anew by itself")
        return carry_out_job(path, session, on=options.on.value, dry_run=dry_run, as_json=as_json)
    if command_of_plan(path) == "train":
        how: Any = options.begin or ("overwrite" if overwrite else "resume")
        place = _Place(options.output or path.parent, options.base_url, options.processes, how)
        return _train(path, session, place, dry_run=dry_run, as_json=as_json)
    found = read_plan(path)
    if MARK in found.model_dump_json():
        raise DataError(
            f"{path} is without a secret that the run was made with, so it cannot be carried out from there",
            hint="give the first command again, with --resume",
        )
    warn_of_other_versions(found, session)
    found = found.replace(backend=_served(found.backend, options.base_url))
    if dry_run:
        print_plan(found, session.out, as_json=as_json)
        return 0
    return carry_out(found, path.parent, session, as_json=as_json, resume=not overwrite, overwrite=overwrite)


def command_of_plan(path: Path) -> str:
    """Which command a plan file is for; "gen" for what cannot be read, whose reader then says why."""
    from atropos_cli.io.rundir import stored_command

    return stored_command(path) or "gen"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where and how a training is carried out."""

    folder: Path
    urls: tuple[str, ...]
    processes: int
    begin: Begin


def _train(path: Path, session: Session, place: _Place, *, dry_run: bool, as_json: bool) -> int:
    from atropos_cli.cli.commands.train import carry_out_training, on_processes, print_train_plan
    from atropos_cli.training.build import derived, make_trainer
    from atropos_cli.training.processes import World
    from atropos_cli.training.run import read_train_plan

    plan = read_train_plan(path)
    if plan.rollouts is not None:
        plan = plan.replace(
            rollouts=plan.rollouts.replace(backend=_served(plan.rollouts.backend, place.urls)),
            suites=tuple(
                suite.replace(plan=suite.plan.replace(backend=_served(suite.plan.backend, place.urls)))
                for suite in plan.suites
            ),
        )
    _, trainer = make_trainer(plan.trainer.name, plan.trainer.config, session.registry)
    if dry_run:
        print_train_plan(plan, derived(trainer, plan), session, as_json=as_json)
        return 0
    world = World.here(place.processes)
    if path.parent != place.folder:  # one of several processes: the folder is where the run is resumed
        processes = os.environ.get("LOCAL_WORLD_SIZE", "1")
        session.args = ("run", str(place.folder), *(("--processes", processes) if processes != "1" else ()))
    if world.size > 1:
        os.environ["WORLD_SIZE"] = str(world.size)
        return on_processes(plan, trainer, place.folder, session, world, place.begin, as_json=as_json)
    return carry_out_training(plan, trainer, place.folder, session, as_json=as_json, begin=place.begin)


def _served(backend: ComponentRef, urls: tuple[str, ...]) -> ComponentRef:
    """The backend with the addresses of servers that were not known when the plan was made."""
    if not urls or "base_url" not in backend.config:
        return backend
    served: ComponentRef = backend.replace(config={**backend.config, "base_url": list(urls)})
    return served


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
