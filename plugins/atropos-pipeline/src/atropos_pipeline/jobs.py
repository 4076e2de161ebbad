"""`atropos pipeline run --on LAUNCHER`: each step a job that waits for those before it, or the whole one job.

The job of a step is `atropos pipeline step FOLDER NAME`, so a step is carried out and recorded as it would be here.
The launcher cancels a job whose predecessor has failed. A launcher whose jobs cannot wait for each other gets one
job, which carries out the steps in order.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import AtroposError, ConfigError, UsageError
from atropos_cli.sdk.commands import ExitCode, Session, counted, end, shell
from atropos_cli.sdk.config import validation_text
from atropos_cli.sdk.jobs import (
    SUBMITTED,
    Face,
    Wanted,
    ask_job,
    make_launcher,
    make_order,
    model_of,
    native_options,
    prepare,
    print_submitted,
    read_submitted,
)
from atropos_cli.sdk.jobs import submit as submit_job
from atropos_cli.sdk.launchers import LaunchError, Resources, job_name, parse_memory, parse_time
from atropos_cli.sdk.serving import Serve
from atropos_pipeline.records import step_folder, write_pipeline

if TYPE_CHECKING:
    from atropos_cli.sdk.launchers import Launcher
    from atropos_pipeline.model import Pipeline, ReadyStep

_KEYS = ("nodes", "gpus_per_node", "cpus", "mem", "time", "signal_before", "requeue", "serve", "sbatch")
_BEFORE = 120
"""signal_before_s of a job that may be queued again and does not say."""
_SERVE_KEYS = ("engine", "model", "tp", "dp", "python", "options")


@dataclass(frozen=True, slots=True)
class StepJob:
    """The job of a step, and the steps of this submission it waits for."""

    step: str
    words: tuple[str, ...]
    wanted: Wanted
    after: tuple[str, ...]


def step_jobs(
    pipeline: Pipeline, steps: Sequence[ReadyStep], again: Collection[str], launcher: Launcher | None = None
) -> list[StepJob]:
    """The jobs of the steps that must be carried out, in order. Raises ConfigError for what a step asks for.

    launcher: checks options in its own terms; None where there is none that could.
    """
    names = {step.name for step in steps}
    jobs = []
    for step in steps:
        values, options = resources_of(step, launcher)
        wanted = Wanted(
            resources=Resources.model_validate(values),
            name=job_name(f"{pipeline.name}-{step.name}"),
            folder=step_folder(pipeline, step.name) / "job",
            serve=_serve(step),
            options=options,
            cwd=Path(pipeline.cwd),
        )
        words = ("pipeline", "step", pipeline.folder, step.name, *(["--anew"] if step.name in again else []))
        jobs.append(StepJob(step.name, words, wanted, tuple(name for name in step.after if name in names)))
    return jobs


def checker(session: Session) -> Launcher | None:
    """A launcher that can check `sbatch = {...}` of a step, wherever the pipeline runs; None where it is missing."""
    for item in session.registry.registrations("launcher"):
        if item.name == "slurm":
            cls: Any = item.load()
            found: Launcher = cls(cls.Config())
            return found
    return None


def submit_whole(
    session: Session, pipeline: Pipeline, words: Sequence[str], launcher: Launcher, *, as_json: bool
) -> int:
    """The whole pipeline as one job."""
    folder = Path(pipeline.folder).absolute()
    place = folder.with_name(f"{folder.name}.job")  # its folder may hold nothing else when a pipeline begins
    wanted = Wanted(resources=Resources(), name=job_name(pipeline.name), folder=place)
    submit_job(prepare(make_order(session, words, wanted), launcher), launcher)
    print_submitted(session.out, read_submitted(place), launcher, Face(), as_json=as_json)
    return ExitCode.OK


def submit(session: Session, pipeline: Pipeline, jobs: Sequence[StepJob], launcher: Launcher, *, as_json: bool) -> int:
    """Submit the steps and print their job ids. When one is refused, those before it are cancelled again."""
    _refuse_queued(session, pipeline, jobs)
    write_pipeline(pipeline)
    ids: dict[str, str] = {}
    for job in jobs:
        wanted = replace(job.wanted, after=tuple(ids[name] for name in job.after))
        try:
            ids[job.step] = submit_job(prepare(make_order(session, job.words, wanted), launcher), launcher)
        except AtroposError as error:
            left = _cancel(launcher, ids)
            told = f"; still queued: {', '.join(left)}" if left else "; no step is left in the queue"
            raise LaunchError(f"step {job.step!r} was not taken: {error.message}{told}", hint=error.hint) from error
    if as_json:
        session.out.json({"name": pipeline.name, "folder": pipeline.folder, "jobs": ids})
        return ExitCode.OK
    rows = [(job.step, ids[job.step], ", ".join(job.after)) for job in jobs]
    session.out.table(rows, header=("step", "job", "after"))
    end(session.out, f"submitted {counted(len(ids), 'job')}", shell("pipeline", "status", pipeline.folder))
    return ExitCode.OK


def show(session: Session, jobs: Sequence[StepJob], launcher: Launcher, *, as_json: bool) -> int:
    """Print what would be submitted: scripts, plans and calls."""
    rows = []
    for job in jobs:
        prepared = prepare(make_order(session, job.words, job.wanted), launcher)
        script, call = launcher.render(prepared.spec), launcher.call(prepared.spec)
        plan = prepared.plan.model_dump(mode="json")
        rows.append({"step": job.step, "after": job.after, "script": script, "call": call, "plan": plan})
        if not as_json:
            waits = f", after {', '.join(job.after)} (afterok, --kill-on-invalid-dep)" if job.after else ""
            session.out.data(f"# step {job.step}{waits}: {shlex.join(call)}\n{script}")
    if as_json:
        session.out.json(rows)
    return ExitCode.OK


def queued(session: Session, pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """(job id, state) of the steps whose jobs the cluster knows."""
    found: dict[str, tuple[str, str]] = {}
    launchers: dict[str, Launcher] = {}
    for step in pipeline.steps:
        folder = step_folder(pipeline, step.name) / "job"
        if not (folder / SUBMITTED).exists():
            continue
        try:
            job = read_submitted(folder)
        except AtroposError:  # nothing names the job
            found[step.name] = ("?", "unknown")
            continue
        try:
            launcher = launchers.setdefault(job.launcher, make_launcher(session, job.launcher))
            found[step.name] = (job.id, ask_job(job, launcher).state)
        except AtroposError:  # the launcher, or its cluster, is not on this machine
            found[step.name] = (job.id, "unknown")
    return found


def _refuse_queued(session: Session, pipeline: Pipeline, jobs: Sequence[StepJob]) -> None:
    """Raises LaunchError when a step is in the queue already."""
    wanted = {job.step for job in jobs}
    for name, (job_id, state) in queued(session, pipeline).items():
        if name in wanted and state in ("pending", "running"):
            raise LaunchError(f"step {name!r} is {state} already, as job {job_id}", hint=f"atropos job cancel {job_id}")


def resources_of(step: ReadyStep, launcher: Launcher | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """What a step asks of a cluster, and its free options of sbatch. Raises ConfigError with the step's name."""
    from pydantic import ValidationError

    given: dict[str, Any] = dict(step.resources)
    where = f"step {step.name!r}, resources"
    _check_keys(given, _KEYS, where)
    sbatch = given.get("sbatch", {})
    if not isinstance(sbatch, dict) or not all(isinstance(value, str | int) for value in sbatch.values()):
        raise ConfigError(f"{where}: sbatch must hold options and their values")
    values: dict[str, Any] = {key: given[key] for key in ("nodes", "gpus_per_node", "requeue") if key in given}
    if "cpus" in given:
        values["cpus_per_node"] = given["cpus"]
    try:
        if "mem" in given:
            values["mem_mb"] = parse_memory(str(given["mem"]))
        if "time" in given:
            values["time_s"] = parse_time(str(given["time"]))
        if "signal_before" in given:  # a bare number means seconds, as for --signal-before
            before = str(given["signal_before"])
            values["signal_before_s"] = int(before) if before.isdigit() else parse_time(before)
        Resources.model_validate(values)
        _check_signal(values, where)
        words = [f"{key}={value}" if value != "" else key for key, value in sbatch.items()]
        options = {} if launcher is None else native_options(launcher, words)
    except ValidationError as error:
        raise ConfigError(f"{where}: {validation_text(error)}") from error
    except UsageError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from error
    return values, options


def _check_signal(values: Mapping[str, Any], where: str) -> None:
    """Raises ConfigError for a job that would be stopped, and queued again, as soon as it starts."""
    limit, before = values.get("time_s"), values.get("signal_before_s", _BEFORE if values.get("requeue") else None)
    if limit is not None and before is not None and before >= limit:
        raise ConfigError(
            f"{where}: a signal {before} s before the end of {limit} s",
            hint="give more time, or a smaller signal_before",
        )


def _serve(step: ReadyStep) -> Serve | None:
    """The servers of a step: serve = "vllm", or a table with more about them."""
    given = step.resources.get("serve")
    if given is None:
        return None
    where = f"step {step.name!r}, resources, serve"
    table: dict[str, Any] = dict(given) if isinstance(given, dict) else {"engine": given}
    _check_keys(table, _SERVE_KEYS, where)
    if table.get("engine") not in ("sglang", "vllm"):
        raise ConfigError(f"{where}: engine must be sglang or vllm, got {table.get('engine')!r}")
    model = table.get("model") or model_of(step.command)
    if not isinstance(model, str):
        raise ConfigError(f"{where}: no model is named", hint="give the command a --model, or serve a model")
    sizes = {key: table.get(key) for key in ("tp", "dp")}
    if not all(size is None or (isinstance(size, int) and size > 0) for size in sizes.values()):
        raise ConfigError(f"{where}: tp and dp must be positive integers")
    extra = table.get("options", [])
    if not isinstance(extra, list) or not all(isinstance(word, str) for word in extra):
        raise ConfigError(f"{where}: options must be a list of texts")
    python = table.get("python")
    return Serve(table["engine"], model, **sizes, python=None if python is None else str(python), extra=tuple(extra))


def _check_keys(given: Collection[str], known: Sequence[str], where: str) -> None:
    for key in given:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            raise ConfigError(f"{where}: unknown key {key!r}", hint=hint)


def _cancel(launcher: Launcher, ids: Mapping[str, str]) -> list[str]:
    """Cancel jobs, the last first; those that may still be in the queue."""
    left = []
    for name, job_id in reversed(list(ids.items())):
        try:
            launcher.cancel(job_id)
        except LaunchError:
            if _may_run(launcher, job_id):
                left.append(f"{name} ({job_id})")
    return left


def _may_run(launcher: Launcher, job_id: str) -> bool:
    """Not when the launcher, asked, says that it is over, or does not know it any more."""
    try:
        found = launcher.status(job_id)
    except LaunchError:
        return True
    return found.state in ("pending", "running") or not found.answered
