"""`atropos pipeline run|status|step`: steps of atropos commands that depend on each other."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import (
    CommandOptions,
    ExitCode,
    JsonOption,
    Session,
    again,
    counted,
    default_run_folder,
    end,
    option,
    session_of,
    shell,
    with_flags,
)
from atropos_cli.sdk.jobs import all_commands, first_mistake, make_launcher
from atropos_pipeline import jobs as pipeline_jobs

if TYPE_CHECKING:
    from atropos_cli.sdk.launchers import Launcher
    from atropos_pipeline.model import Pipeline, ReadyStep
    from atropos_pipeline.records import StepView

app = typer.Typer(help="Carry out steps of atropos commands that depend on each other.")
_NO_STEPS = frozenset({"pipeline", "job", "tmux", "slurm", "view", "serve", "launch-sglang", "launch-vllm"})
_NOWHERE = Path("PIPELINE")
_HERE = "local"


class RunOptions(CommandOptions):
    """Where a pipeline is carried out, and what of it."""

    output: Path | None = option(
        None, "The pipeline's folder.  [default: runs/NAME-DATE-TIME]", short="o", metavar="FOLDER"
    )
    resume: bool = option(False, "Resume: finished steps are left alone.")
    redo: tuple[str, ...] = option(
        (), "Carry this step and those after it out anew, replacing what they wrote.", metavar="STEP"
    )
    on: str = option(_HERE, "Here (local), or as jobs: tmux, slurm, ...", metavar="LAUNCHER")
    profile: str | None = option(None, "Profile of the launcher, with --on.", metavar="NAME")
    dry_run: bool = option(False, "Check the file, print the steps, and stop.")


class StepOptions(CommandOptions):
    """How one step is carried out."""

    anew: bool = option(False, "Replace what an earlier try wrote.")
    base_url: str | None = option(None, "Servers for the step.", metavar="URL")


_KEYS = {*RunOptions.model_fields, *StepOptions.model_fields}


@app.command("run")
@with_flags("pipeline", RunOptions, others=_KEYS)
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline, TOML or YAML.", show_default=False)],
    *,
    options: RunOptions,
    config: Path | None,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """Carry out a pipeline here, a step at a time; stops at the first step that fails.

    The exit code is that of the step that failed. To go on: the same command with --resume. With --on slurm
    every step is a job that waits for those before it; with --on tmux one job carries out all. Both return at once.
    """
    from atropos_pipeline.runner import prepare, run_here

    output, resume, redo, dry_run = options.output, options.resume, options.redo, options.dry_run
    if (resume or redo) and output is None:
        raise UsageError("--resume and --redo need the pipeline's folder", hint="add --output runs/NAME")
    pipeline = _open(file, output)
    check_arguments(pipeline)
    steps, again = prepare(pipeline, resume=resume or bool(redo), redo=redo)
    launcher = None if options.on == _HERE else make_launcher(session, options.on, (), options.profile, config)
    if launcher is None and options.profile is not None:
        raise UsageError("--profile is for the launcher of --on", hint="drop it, or add --on slurm")
    asked = launcher or pipeline_jobs.checker(session)
    jobs = pipeline_jobs.step_jobs(pipeline, steps, again, asked)  # checks the resources, wherever it will run
    if launcher is not None and launcher.capabilities.dependencies:
        if dry_run:
            return pipeline_jobs.show(session, jobs, launcher, as_json=as_json)
        return pipeline_jobs.submit(session, pipeline, jobs, launcher, as_json=as_json)
    if dry_run:
        print_steps(session, pipeline, steps, as_json=as_json)
        return ExitCode.OK
    if launcher is not None:
        words = ["pipeline", "run", str(file), "--output", pipeline.folder, *(["--resume"] if resume else [])]
        words += [word for name in redo for word in ("--redo", name)]
        return pipeline_jobs.submit_whole(session, pipeline, words, launcher, as_json=as_json)
    if resume:
        for step in pipeline.steps:
            if step not in steps:
                session.out.note(f"{step.name}: done already")
    code = run_here(pipeline, steps, again, _report(session))
    if as_json:
        _print_status(session, pipeline, as_json=True)
    if not as_json:
        _end(session, file, pipeline, code)
    return _as_exit_code(code)


def _end(session: Session, file: Path, pipeline: Pipeline, code: int) -> None:
    from atropos_pipeline.records import view

    states = [item.state for item in view(pipeline).values()]
    headline = f"{states.count('done')} of {counted(len(states), 'step')} done"
    following = shell("pipeline", "status", pipeline.folder)
    if code != ExitCode.OK:
        following = shell("pipeline", "run", file, "--output", pipeline.folder, "--resume")
    end(session.out, headline, following)


@app.command("status")
def status(
    ctx: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The pipeline's folder.", show_default=False)],
    as_json: JsonOption = False,
) -> int:
    """How the steps of a pipeline stand. The exit code is 1 when the last attempt at one failed."""
    from atropos_pipeline.records import read_stored

    return _print_status(session_of(ctx), read_stored(folder), as_json=as_json)


@app.command("step")
@with_flags("pipeline", StepOptions, others=_KEYS, own_only=True)
def step(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The pipeline's folder.", show_default=False)],
    name: Annotated[str, typer.Argument(metavar="STEP", help="The step's name.", show_default=False)],
    *,
    options: StepOptions,
    session: Session,
) -> int:
    """Carry out one step of a pipeline, as a cluster job does. Done already: nothing happens."""
    from atropos_pipeline.records import read_stored, view
    from atropos_pipeline.runner import run_step

    pipeline = read_stored(folder)
    wanted = pipeline.step(name)
    if options.base_url is not None:
        wanted = wanted.replace(env={**wanted.env, "ATROPOS_BASE_URL": options.base_url})
    if not options.anew and view(pipeline)[name].state == "done":
        session.out.note(f"{name}: done already")
        return ExitCode.OK
    return _as_exit_code(run_step(pipeline, wanted, anew=options.anew, report=_report(session)))


def submit_file(
    file: Path, folder: Path | None, session: Session, launcher: Launcher, *, dry_run: bool, as_json: bool
) -> int:
    """A new pipeline as jobs, for `atropos job submit FILE`."""
    from atropos_pipeline.runner import prepare

    pipeline = _open(file, folder)
    check_arguments(pipeline)
    steps, again = prepare(pipeline, resume=False)
    jobs = pipeline_jobs.step_jobs(pipeline, steps, again, launcher)
    if not launcher.capabilities.dependencies:
        raise UsageError(
            f"launcher {launcher.name!r} cannot let jobs wait for each other",
            hint=f"atropos pipeline run {file} --on {launcher.name} carries all steps out in one job",
        )
    if dry_run:
        return pipeline_jobs.show(session, jobs, launcher, as_json=as_json)
    return pipeline_jobs.submit(session, pipeline, jobs, launcher, as_json=as_json)


def step_commands() -> list[str]:
    """The commands that a step may be."""
    return [name for name in all_commands() if name not in _NO_STEPS]


def check_arguments(pipeline: Pipeline) -> None:
    """Parse the arguments of every step without running it, so that a misspelt option is found before the first.

    Raises UsageError with the first mistake of each step.
    """
    found = {step.name: first_mistake(step.command, step.env) for step in pipeline.steps}
    wrong = [f"{name}: {mistake}" for name, mistake in found.items() if mistake is not None]
    if len(wrong) == 1:
        raise UsageError(f"step {wrong[0]}")
    if wrong:
        raise UsageError("\n".join(["steps cannot be run as they are:", *(f"  {line}" for line in wrong)]))


def _open(file: Path, output: Path | None) -> Pipeline:
    from atropos_pipeline.file import open_pipeline

    folder, known = output, step_commands()
    if folder is None:
        folder = default_run_folder(open_pipeline(file, _NOWHERE, known).name)
    return open_pipeline(file, folder, known)


def _report(session: Session) -> Callable[[str, str], None]:
    return lambda step, what: session.out.note(f"{step}: {what}")


def print_steps(session: Session, pipeline: Pipeline, steps: Sequence[ReadyStep], *, as_json: bool) -> None:
    wanted = {step.name for step in steps}
    if as_json:
        rows = [{**step.model_dump(mode="json"), "run": step.name in wanted} for step in pipeline.steps]
        session.out.json({"name": pipeline.name, "folder": pipeline.folder, "cwd": pipeline.cwd, "steps": rows})
        return
    session.out.data(f"{pipeline.name} in {pipeline.folder}")
    for step in pipeline.steps:
        after = f" (after {', '.join(step.after)})" if step.after else ""
        done = "" if step.name in wanted else "  [done already]"
        session.out.data(f"  {step.name}{after}{done}")
        session.out.data("    " + " ".join(["atropos", *(shlex.quote(word) for word in step.command)]))
    todo = f"{len(wanted)} of {counted(len(pipeline.steps), 'step')} to do"
    end(session.out, todo, again(session.args))


def _print_status(session: Session, pipeline: Pipeline, *, as_json: bool) -> int:
    from atropos_pipeline.records import view

    views, jobs = list(view(pipeline).values()), pipeline_jobs.queued(session, pipeline)
    if as_json:
        rows = [item.model_dump(mode="json", exclude_none=True) for item in views]
        for row in rows:
            if row["name"] in jobs:
                row["job"], row["job_state"] = jobs[row["name"]]
        session.out.json({"name": pipeline.name, "folder": pipeline.folder, "steps": rows})
    else:
        table = []
        for item in views:
            told = [item.reason] if item.reason else []
            if item.name in jobs and item.state != "done":
                told.append("job {} {}".format(*jobs[item.name]))
            ended = item.record.ended if item.record is not None else None
            table.append((item.name, item.state, ended or "", ", ".join(told)))
        session.out.table(table, header=("step", "state", "ended", ""))
        end(session.out, *_standing(pipeline, [(item.name, item.state) for item in views], waiting=bool(jobs)))
    return ExitCode.FAILED if any(_failed(item, jobs.get(item.name)) for item in views) else ExitCode.OK


def _failed(step: StepView, job: tuple[str, str] | None) -> bool:
    """Has the last attempt at a step failed, or its job without one? A job in the queue is a new attempt."""
    state = "" if job is None else job[1]
    if step.state == "done" or state in ("pending", "running"):
        return False
    recorded = step.record is not None and step.record.state == "failed"
    return recorded or step.reason == "killed" or state in ("failed", "cancelled", "lost")


def _standing(pipeline: Pipeline, states: Sequence[tuple[str, str]], *, waiting: bool) -> tuple[str, str | None]:
    done = sum(state == "done" for _, state in states)
    headline = f"{done} of {counted(len(states), 'step')} done"
    if done == len(states):
        return headline, None
    if waiting or any(state == "running" for _, state in states):
        return headline, shell("pipeline", "status", pipeline.folder)
    return headline, f"the same atropos pipeline run with --output {shlex.quote(pipeline.folder)} --resume"


def _as_exit_code(code: int) -> ExitCode:
    """A step's exit code as ours; any other one (a signal, a plugin's own) is a failure."""
    return ExitCode(code) if code in set(ExitCode) else ExitCode.FAILED
