"""`gen --on LAUNCHER`: execute a run in shards by a launcher, show what the shards say, join them here."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.cli.runs import resuming
from atropos_cli.config.commands import CommandOptions, option
from atropos_cli.console.ending import end, reward_headline, shell
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, ExitCode, LaunchError, UsageError
from atropos_cli.jobs.launchers import make_launcher

if TYPE_CHECKING:
    from atropos_cli.cli.environments import ConfiguredEnvironment
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.run import RunSummary
    from atropos_cli.ports.launcher import JobSpec, JobStatus, Launcher

_PANEL = "Elsewhere"
_SILENT_S = 60.0
"""Seconds for which a launcher may fail to answer while its shards run."""


class ShardOptions(CommandOptions):
    """The launcher that executes a command in shards."""

    on: str | None = option(
        None, "Execute it in shards on a cluster, e.g. ray or slurm.", panel=_PANEL, metavar="LAUNCHER"
    )
    shards: int = option(2, "Number of shards; with --on.", panel=_PANEL, ge=1, le=10_000)
    on_options: tuple[str, ...] = option(
        (), "An option of the launcher.", panel=_PANEL, flag="on-option", metavar="KEY=VALUE"
    )


@dataclass(frozen=True, slots=True)
class ShardTarget:
    """The launcher that executes a run, and the number of shards."""

    launcher: Launcher
    shards: int


def shard_target(chosen: ConfiguredEnvironment, options: Any) -> ShardTarget | None:
    """Who executes a run of `gen` or `eval` in shards; None without --on. Raises UsageError."""
    if options.on is None:
        return None
    if options.overwrite or chosen.settings.execution.shard is not None:
        raise UsageError("--on goes neither with --overwrite nor with --shard", hint="drop one of them")
    launcher = make_launcher(chosen.session, options.on, options.on_options)
    check_spreads(launcher)
    return ShardTarget(launcher, options.shards)


def check_spreads(launcher: Launcher) -> None:
    """Raises UsageError for a launcher that cannot execute a run in shards."""
    if not launcher.capabilities.shards:
        raise UsageError(
            f"launcher {launcher.name!r} does not execute shards",
            hint=f"atropos job submit --on {launcher.name} starts whole commands",
        )


def job_of(plan: Plan, folder: Path, shards: int) -> JobSpec:
    """The run as one job of a launcher."""
    from atropos_cli.jobs.spreading import variables
    from atropos_cli.ports.launcher import JobSpec

    return JobSpec(
        name=folder.name,
        run=str(folder.absolute()),
        resources={"shards": shards},
        cwd=str(Path.cwd()),
        env=variables(plan),
    )


def spread(plan: Plan, folder: Path, session: Session, target: ShardTarget, *, resume: bool, as_json: bool) -> int:
    """Submit, follow, merge; returns the exit code. Ctrl-C stops the shards, which save what they have."""
    summary = roll_out(plan, folder, session, target, resume=resume)
    if summary is None:
        return ExitCode.INTERRUPTED
    if as_json:
        session.out.json({"run": str(folder), **summary.model_dump(mode="json")})
    end(session.out, reward_headline(summary), shell("view", folder))
    return ExitCode.OK


def roll_out(plan: Plan, folder: Path, session: Session, target: ShardTarget, *, resume: bool) -> RunSummary | None:
    """Submit, follow, merge; the summary of the whole, None when it was stopped. Raises LaunchError."""
    from atropos_cli.jobs.spreading import join_shards, write_shards

    out, launcher, shards = session.out, target.launcher, target.shards
    fresh = not folder.exists()
    write_shards(plan, folder, shards, resume=resume)
    try:
        job_id = launcher.submit(job_of(plan, folder, shards))
    except LaunchError:
        if fresh:  # nothing began: the same command can be given again
            shutil.rmtree(folder, ignore_errors=True)
        raise
    out.note(f"{shards} shards on {launcher.name} -> {folder}")
    again = resuming(session.args, folder)
    status = follow(session, launcher, job_id)
    if status is None:
        end(out, "interrupted: the shards keep what is done", again)
        return None
    if status.state != "finished":
        raise _failure(launcher.name, status, f"go on with: {again}")
    summary = join_shards(folder, shards)
    total = "" if summary.groups_total is None else f" of {summary.groups_total}"
    out.note(f"merged: {summary.groups_done}{total} groups, {summary.rollouts} rollouts -> {folder}")
    return summary


def follow(session: Session, launcher: Launcher, job_id: str) -> JobStatus | None:
    """Show what the shards say until the job ends; None when it was stopped by Ctrl-C or SIGTERM.

    The signals set a flag: an exception would come up wherever the launcher's library is, and be lost there.
    """
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    reader = threading.Thread(target=_show, args=(session, launcher, job_id), daemon=True)
    try:
        reader.start()
        answered = time.monotonic()
        while True:
            try:
                status = launcher.status(job_id)
            except LaunchError as error:  # the shards run on while it does not answer
                if time.monotonic() - answered > _SILENT_S:
                    raise LaunchError(f"{error.message}; the shards were not stopped", hint=error.hint) from error
            else:
                answered = time.monotonic()
                if status.state not in ("running", "pending"):
                    break
            if stop.wait(0.2):
                session.out.note("stopping the shards; they save finished work")
                launcher.cancel(job_id)
                return None
        reader.join(5.0)
        return status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(session: Session, launcher: Launcher, job_id: str) -> None:
    try:
        for line in launcher.logs(job_id, follow=True):
            session.out.note(line)
    except AtroposError as error:
        session.out.warning(f"its lines are not shown: {error.message}", error.hint)


def _failure(name: str, status: JobStatus, again: str) -> LaunchError:
    error = LaunchError(f"the run on {name} {status.state}: {status.reason or 'no reason given'}", hint=again)
    if status.exit_code in set(ExitCode) - {ExitCode.OK}:
        error.exit_code = ExitCode(status.exit_code)
    return error
