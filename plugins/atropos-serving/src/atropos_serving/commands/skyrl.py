"""`atropos launch-skyrl MODEL`: start SkyRL's server of the Tinker API, here, detached, in tmux or on SLURM."""

from __future__ import annotations

import shlex
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import ExitCode, JsonOption, Session, again, end, with_flags
from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import TINKER
from atropos_serving.commands.launch import Extra, Model
from atropos_serving.commands.placing import Start, answered
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
    if not options.slurm and options.gpus:
        raise UsageError("--gpus is for --slurm", hint="add --slurm")
    if (code := answered(session, options, model, as_json=as_json)) is not None:
        return code
    if model is None:
        raise UsageError("the model is missing", hint="atropos launch-skyrl OWNER/NAME, or a folder")
    check_extra(extra or ())
    plan = _plan(session, model, options, extra or ())
    start = Start(plan, options, lambda launcher: _record(plan.name, model, launcher), as_json)
    if options.slurm:
        return start.in_slurm(session, 1, options.gpus, config)
    if options.dry_run:
        return _show(session, plan, as_json=as_json)
    return start.here(session)


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
