"""`atropos gen ENV`: settings -> plan -> run. The engine does the work; this file decides where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from atropos_cli.cli.environments import Chosen, environment_app
from atropos_cli.cli.launchers import make_launcher
from atropos_cli.cli.runs import carry_out, print_plan
from atropos_cli.cli.spread import Elsewhere, check_spreads, job_of, spread
from atropos_cli.config.problems import DEFAULT
from atropos_cli.console.commands import ConfigOption, JsonOption
from atropos_cli.console.names import default_run_folder
from atropos_cli.errors import ExitCode, UsageError
from atropos_cli.jobs.order import PlannedRun, makes_plan

OUTPUT, ELSEWHERE = "Output", "Elsewhere"


@makes_plan
def gen(
    chosen: Chosen,
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="RUN",
            help="Run folder, or - for groups on stdout.  [default: runs/ENV-DATE-TIME]",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run.", rich_help_panel=OUTPUT)] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run, once the new one is done.", rich_help_panel=OUTPUT)
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and stop.", rich_help_panel=OUTPUT)
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="LAUNCHER",
            show_default=False,
            rich_help_panel=ELSEWHERE,
            help="Carry the run out in shards on a cluster that is there, e.g. ray.",
        ),
    ] = None,
    shards: Annotated[
        int,
        typer.Option("--shards", min=1, max=10_000, rich_help_panel=ELSEWHERE, help="Number of shards; with --on."),
    ] = 2,
    on_option: Annotated[
        list[str] | None,
        typer.Option(
            "--on-option",
            metavar="KEY=VALUE",
            show_default=False,
            rich_help_panel=ELSEWHERE,
            help="An option of the launcher. Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Generate scored groups."""
    from atropos_cli.rollout.planner import build_plan

    out = chosen.session.out
    to_stdout = output == "-"
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if resume and (output is None or to_stdout):
        raise UsageError("--resume needs the run folder to go on with", hint="add --output runs/NAME")
    if to_stdout and as_json and not dry_run:
        raise UsageError("--json and -o - would both write to stdout", hint="drop --json, or give a run folder")
    plan = build_plan(chosen.settings, chosen.given_name, chosen.options, chosen.session.registry)
    if chosen.session.take is not None:
        own_drain = chosen.resolved.origin("settings", ("execution", "drain")) != DEFAULT
        target = None if output is None else Path(output)
        chosen.session.take(PlannedRun(plan, target, overwrite=overwrite, own_drain=own_drain))
        return ExitCode.OK
    if on is not None:
        if to_stdout or overwrite or plan.execution.shard is not None:
            raise UsageError("--on goes neither with -o -, nor with --overwrite or --shard", hint="drop one of them")
        launcher = make_launcher(chosen.session, on, on_option or [])
        check_spreads(launcher)
        target = Path(output) if output else default_run_folder(chosen.environment.name)
        if not dry_run:
            place = Elsewhere(launcher, shards)
            return spread(plan, target, chosen.session, place, resume=resume, as_json=as_json)
        out.note(launcher.render(job_of(plan, target, shards)))
    if dry_run:
        print_plan(plan, out, as_json=as_json)
        return 0
    folder: Path | None = None
    if not to_stdout:
        folder = Path(output) if output else default_run_folder(chosen.environment.name)
    return carry_out(plan, folder, chosen.session, as_json=as_json, resume=resume, overwrite=overwrite)


app: Any = environment_app(
    gen, "Roll out an environment against a model and write scored groups. `atropos gen ENV --help` lists all options."
)
