"""`atropos launch-skyrl MODEL`: start SkyRL's server of the Tinker API, here, detached, in tmux or on SLURM."""

from __future__ import annotations

import shlex
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import ExitCode, JsonOption, Session, again, end, with_flags
from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import TINKER
from atropos_serving.commands.launch import Extra, Model
from atropos_serving.skyrl import SkyrlOptions, check_extra, component, find_python

if TYPE_CHECKING:
    from atropos_cli.sdk.launchers import JobPlan
    from atropos_cli.sdk.serving import ServerRecord


@with_flags("skyrl", SkyrlOptions)
def skyrl(
    model: Model = None,
    extra: Extra = None,
    *,
    options: SkyrlOptions,
    session: Session,
    config: Path | None,
    as_json: JsonOption = False,
) -> int:
    """Start SkyRL's server for a model and wait until it answers: `atropos train --trainer tinker` trains on it.

    Arguments behind -- go to the server unchanged. Section [skyrl] of a configuration file sets the same.

    atropos launch-skyrl Qwen/Qwen3-0.6B --engine-python ~/skyrl/bin/python --detach
    """
    from atropos_serving.commands import servers

    if sum((options.status, options.stop, options.detach, options.tmux, options.slurm)) > 1:
        raise UsageError("--status, --stop, --detach, --tmux and --slurm exclude each other")
    if not options.slurm and (options.gpus or options.time or options.profile):
        raise UsageError("--gpus, --time and --profile are for --slurm", hint="add --slurm")
    if options.status:
        return servers.show_status(session, options.name or model, as_json=as_json)
    if options.stop:
        return servers.stop_server(session, options.name or model, as_json=as_json)
    if options.held is not None:
        return servers.run_here(session, options.held, as_json=as_json)
    if model is None:
        raise UsageError("the model is missing", hint="atropos launch-skyrl OWNER/NAME, or a folder")
    check_extra(extra or ())
    plan = _plan(session, model, options, extra or ())
    if options.slurm:
        return _in_slurm(session, plan, model, options, config, as_json=as_json)
    if options.dry_run:
        return _show(session, plan, as_json=as_json)
    folder, record = _note(plan, model, "tmux" if options.tmux else "local")
    if not (options.tmux or options.detach):
        return servers.run_here(session, folder, as_json=as_json)
    alive = _in_tmux(session, plan.name, folder) if options.tmux else servers.start_detached(folder)
    if options.wait:
        return servers.wait_ready(session, folder, alive, as_json=as_json)
    return _begun(session, record)


def _plan(session: Session, model: str, options: SkyrlOptions, extra: Sequence[str]) -> JobPlan:
    from atropos_cli.sdk.jobs import core_version
    from atropos_cli.sdk.launchers import JobPlan, Resources
    from atropos_cli.sdk.serving import default_name, server_folder
    from atropos_serving.prepare import check_ports, look_up

    look_up(model, offline=False, ask_hub=False)
    name = options.name or default_name(model)
    data = (options.data.expanduser() if options.data is not None else server_folder(name) / "data").absolute()
    try:
        python = find_python(options.engine_python)
    except LaunchError as error:
        if not options.dry_run:
            raise
        session.out.warning(error.message, error.hint)
        python = options.engine_python or sys.executable
    if not options.dry_run:
        if not options.slurm:
            check_ports(options.port, 1)
        data.mkdir(parents=True, exist_ok=True)
    return JobPlan(
        atropos_version=core_version,
        name=name,
        components=(component(model, options, data, python, extra),),
        resources=Resources(nodes=1, gpus_per_node=options.gpus),
        cwd=str(Path.cwd()),
        expose=options.slurm or options.host != "127.0.0.1",
        start_timeout=options.start_timeout,
    )


def _note(plan: JobPlan, model: str, launcher: str) -> tuple[Path, ServerRecord]:
    """Write the server's folder. Raises LaunchError when the name is in use."""
    from atropos_cli.sdk.jobs import write_job
    from atropos_cli.sdk.serving import running, server_folder, taken, write_record

    folder = server_folder(plan.name)
    if running(folder):
        raise taken(folder)
    write_job(plan, folder)
    record = _record(plan.name, model, launcher)
    write_record(folder, record)
    return folder, record


def _record(name: str, model: str, launcher: str) -> ServerRecord:
    from atropos_cli.sdk.serving import ServerRecord

    return ServerRecord(
        name=name,
        engine=TINKER,
        model=model,
        served_name=model,
        launcher=launcher,
        host=socket.gethostname(),
        started=time.time(),
    )


def _begun(session: Session, record: ServerRecord) -> ExitCode:
    from atropos_serving.commands.servers import status_command

    end(session.out, f"{record.name} is starting", status_command(record))
    return ExitCode.OK


def _show(session: Session, plan: JobPlan, *, as_json: bool) -> ExitCode:
    """The dry run."""
    if as_json:
        session.out.json({"plan": plan.model_dump(mode="json")})
        return ExitCode.OK
    for item in plan.components:
        words = [f"{key}={shlex.quote(value)}" for key, value in item.env.items()]
        session.out.data(f"{item.name}: {' '.join([*words, shlex.join(item.argv)])}")
    end(session.out, "would start 1 server", again(session.args))
    return ExitCode.OK


def _in_tmux(session: Session, name: str, folder: Path) -> Callable[[], bool]:
    """Run the noted server in the foreground of a tmux session. Returns: does it live?"""
    from atropos_cli.sdk.jobs import make_launcher
    from atropos_cli.sdk.launchers import JobSpec

    command = ("launch-skyrl", "--held", str(folder))
    launcher = make_launcher(session, "tmux")
    number = launcher.submit(JobSpec(name=f"server-{name}", run=str(folder), command=command, cwd=str(Path.cwd())))
    session.out.note(f"atropos tmux attach {number} shows it")
    return lambda: launcher.status(number).state in ("pending", "running")


def _in_slurm(
    session: Session, plan: JobPlan, model: str, options: SkyrlOptions, config: Path | None, *, as_json: bool
) -> int:
    from atropos_cli.sdk.serving import read_server, server_folder, write_record
    from atropos_serving.commands import batch

    folder = server_folder(plan.name)
    before = read_server(folder)
    before = None if before is None else batch.current(session, before)
    if before is not None and before.state in ("starting", "ready") and not options.dry_run:
        raise LaunchError(f"a server {folder.name!r} is {before.state} already", hint="give another --name")
    place = batch.Batch(1, options.gpus, options.time, options.profile, config)
    number = batch.submit(session, plan, folder, place, dry_run=options.dry_run, as_json=as_json)
    if number is None:
        return ExitCode.OK
    record = _record(plan.name, model, "slurm").replace(job_id=number, host="")
    write_record(folder, record)
    return batch.wait_ready(session, folder, as_json=as_json) if options.wait else _begun(session, record)
