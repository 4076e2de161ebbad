"""`atropos gen ENV`: settings -> plan -> run. The engine does the work; this file decides where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atropos_cli.cli.environments import ConfiguredEnvironment, Use, environment_app
from atropos_cli.cli.runs import carry_out, print_plan
from atropos_cli.cli.spread import ShardOptions, job_of, shard_target, spread
from atropos_cli.cli.toolsources import tell_tools
from atropos_cli.config.commands import CommandOptions, command_bucket, option
from atropos_cli.config.problems import DEFAULT
from atropos_cli.console.commands import ConfigOption, JsonOption
from atropos_cli.console.names import default_run_folder
from atropos_cli.errors import ExitCode, UsageError
from atropos_cli.jobs.order import PlannedRun, makes_plan

OUTPUT = "Output"


class RunFolderOptions(CommandOptions):
    """Where the run goes."""

    output: str | None = option(
        None,
        "Run folder, or - for groups on stdout; default: runs/ENV-DATE-TIME.",
        panel=OUTPUT,
        short="o",
        metavar="RUN",
    )
    resume: bool = option(False, "Go on with the run.", panel=OUTPUT)
    overwrite: bool = option(False, "Replace the run, once the new one is done.", panel=OUTPUT)
    dry_run: bool = option(False, "Print the plan and stop.", panel=OUTPUT)


class GenOptions(RunFolderOptions, ShardOptions):
    """Where the run goes, and who executes it."""


OWN = command_bucket("gen", GenOptions)


@makes_plan
def gen(
    chosen: ConfiguredEnvironment, *, options: GenOptions, as_json: JsonOption = False, config: ConfigOption = None
) -> int:
    """Generate scored groups."""
    from atropos_cli.rollout.planner import build_plan

    out = chosen.session.out
    output, resume = options.output, options.resume
    to_stdout = output == "-"
    if resume and options.overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if resume and (output is None or to_stdout):
        raise UsageError("--resume needs the run folder to go on with", hint="add --output runs/NAME")
    if to_stdout and as_json and not options.dry_run:
        raise UsageError("--json and -o - would both write to stdout", hint="drop --json, or give a run folder")
    if to_stdout and (url := chosen.settings.delivery.to) is not None:
        raise UsageError(f"groups for {url} are kept in a run folder, and -o - has none", hint="drop -o -, or --to")
    plan = build_plan(chosen.settings, chosen.given_name, chosen.options, chosen.session.registry)
    if chosen.session.take is not None:
        own_drain = chosen.resolved.origin("settings", ("execution", "drain")) != DEFAULT
        target = None if output is None else Path(output)
        chosen.session.take(PlannedRun(plan, target, overwrite=options.overwrite, own_drain=own_drain))
        return ExitCode.OK
    if options.on is not None:
        if to_stdout:
            raise UsageError("--on does not go with -o -", hint="give a run folder")
        place = shard_target(chosen, options)
        assert place is not None
        target = Path(output) if output else default_run_folder(chosen.environment.name)
        if not options.dry_run:
            return spread(plan, target, chosen.session, place, resume=resume, as_json=as_json)
        out.note(place.launcher.render(job_of(plan, target, options.shards)))
    if options.dry_run:
        print_plan(plan, out, as_json=as_json)
        if plan.tools:
            tell_tools(plan, chosen.session)
        return 0
    folder: Path | None = None
    if not to_stdout:
        folder = Path(output) if output else default_run_folder(chosen.environment.name)
    return carry_out(plan, folder, chosen.session, as_json=as_json, resume=resume, overwrite=options.overwrite)


app: Any = environment_app(
    Use(gen, OWN),
    "Roll out an environment against a model and write scored groups. `atropos gen ENV --help` lists all options.",
)
