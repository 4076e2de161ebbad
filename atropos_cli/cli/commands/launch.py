"""`atropos launch-sglang MODEL`, `atropos launch-vllm MODEL`: start inference servers, here, detached or in tmux."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.lazy import Command, command_of
from atropos_cli.cli.options import entries_of
from atropos_cli.config.buckets import backend_bucket, environment_bucket, settings_bucket
from atropos_cli.config.serving import LAUNCH, LaunchSettings, launch_bucket
from atropos_cli.console.commands import ConfigOption, Flag, JsonOption
from atropos_cli.console.ending import again, counted, end
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode, LaunchError, UsageError
from atropos_cli.serving.options import Engine, option_table

if TYPE_CHECKING:
    from atropos_cli.domain.job import JobPlan
    from atropos_cli.serving.platforms import Platform
    from atropos_cli.serving.record import ServerRecord
    from atropos_cli.serving.servers import Servers

HOW, WHICH = "How it runs", "Servers that run"
_ANY = "MODEL"
SHOWN = {"sglang": "SGLang", "vllm": "vLLM"}


@dataclass(frozen=True)
class Given:
    """What one call of the command was told."""

    engine: Engine
    model: str
    extra: tuple[str, ...]
    settings: LaunchSettings
    name: str | None
    strict: bool
    as_json: bool


def _launch(
    ctx: typer.Context,
    *,
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="Folder, or OWNER/NAME of the hub.", show_default=False)
    ] = None,
    extra: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- OPTIONS", help="Options of the engine itself, verbatim.", show_default=False),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the server.  [default: the model's]", show_default=False),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once it is ready; it outlives this session.", rich_help_panel=HOW)
    ] = False,
    tmux: Annotated[bool, typer.Option("--tmux", help="As --detach, in a tmux session.", rich_help_panel=HOW)] = False,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="As a SLURM job of --gpus a node.", rich_help_panel=HOW)
    ] = False,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes of the job.", rich_help_panel=HOW)] = 1,
    time_limit: Annotated[
        str | None,
        typer.Option("--time", help="Its time limit: 2h, 1d12h.", rich_help_panel=HOW, show_default=False),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", help="Cluster profile, [slurm.profiles.NAME].", rich_help_panel=HOW, show_default=False
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="With these three: wait until it is ready.", rich_help_panel=HOW)
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command lines and stop.", rich_help_panel=HOW)
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="An option unknown to our table is an error.", rich_help_panel=HOW)
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="List servers; with --name one of them.", rich_help_panel=WHICH)
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the server --name, or the only one.", rich_help_panel=WHICH)
    ] = False,
    held: Annotated[Path | None, typer.Option("--held", hidden=True, help="A folder that is ready to be run.")] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """The options that are not settings; their signature only."""


def launch_command(engine: Engine) -> Any:
    """The command for one engine."""
    flags = [
        Flag(LAUNCH, option, (option.flag,), "Server", f"{LAUNCH}_{number}")
        for number, option in enumerate(launch_bucket().options)
    ]
    own = list(inspect.signature(_launch, eval_str=True).parameters.values())

    def call(**given: Any) -> int:
        return _run(engine, flags, given)

    parameters = [*own, *(flag.as_parameter() for flag in flags)]
    _set_signature(call, parameters)
    cls = type("LaunchCommand", (_LaunchCommand,), {"engine": engine})
    doc = (
        f"Start {SHOWN[engine]} servers for a model and wait until they answer.\n\n"
        "Sizes and options are chosen from the GPUs and the model where they are not given; what stands behind -- goes "
        f"to the engine as it is. Section [launch] of a configuration file sets the same.\n\n"
        f"atropos launch-{engine} Qwen/Qwen3-8B --detach"
    )
    return command_of(call, name=f"launch-{engine}", cls=cls, help=doc)


class _LaunchCommand(Command):
    """Says where an option of the engine belongs when it stands before the dashes."""

    engine: Engine

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            wanted = str(getattr(error, "option_name", ""))
            if wanted.replace("_", "-") in option_table(self.engine).names:
                raise UsageError(
                    f"{wanted} is an option of {SHOWN[self.engine]}, not of atropos",
                    hint=f"put it behind two dashes: atropos launch-{self.engine} MODEL -- {wanted} ...",
                ) from error
            raise


def _set_signature(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    target: Any = function
    ordered = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in parameters]
    target.__signature__ = inspect.Signature(ordered)
    target.__annotations__ = {item.name: item.annotation for item in ordered}


def _run(engine: Engine, flags: list[Flag], given: dict[str, Any]) -> int:
    from atropos_cli.cli import servers

    session = session_of(given["ctx"])
    name, as_json = given["name"], given["as_json"]
    if sum(map(bool, (given[key] for key in ("status", "stop", "detach", "tmux", "slurm")))) > 1:
        raise UsageError("--status, --stop, --detach, --tmux and --slurm exclude each other")
    if not given["slurm"] and (given["nodes"] > 1 or given["time_limit"] or given["profile"]):
        raise UsageError("--nodes, --time and --profile are for --slurm", hint="add --slurm")
    if given["status"]:
        return servers.show_status(session, name or given["model"], as_json=as_json)
    if given["stop"]:
        return servers.stop_server(session, name or given["model"], as_json=as_json)
    if given["held"] is not None:
        return servers.run_here(session, given["held"], as_json=as_json)
    if given["model"] is None and given["dry_run"]:
        session.out.note(f"{_ANY} stands for the model, which was not named")
    elif given["model"] is None:
        raise UsageError(
            "the model is missing", hint=f"atropos launch-{engine} OWNER/NAME, or a folder; --status lists servers"
        )
    call = Given(
        engine=engine,
        model=given["model"] or _ANY,
        extra=tuple(given["extra"] or ()),
        settings=_settings(given["config"], entries_of(flags, given)),
        name=name,
        strict=given["strict"],
        as_json=as_json,
    )
    if given["slurm"]:
        return _in_slurm(session, call, given)
    if given["tmux"] and not given["dry_run"]:
        return _in_tmux(session, call, wait=given["wait"])
    plan, planned = prepare(session, call, dry_run=given["dry_run"])
    if given["dry_run"]:
        _show(session, call, plan, planned)
        return ExitCode.OK
    folder, record = note(call, plan)
    if given["detach"]:
        alive = servers.start_detached(folder)
        return servers.wait_ready(session, folder, alive, as_json=as_json) if given["wait"] else _begun(session, record)
    return servers.run_here(session, folder, as_json=as_json)


def _settings(config: Path | None, entries: list[Any]) -> LaunchSettings:
    from atropos_cli.config.resolve import resolve
    from atropos_cli.config.sources import collect

    buckets = [settings_bucket(), environment_bucket(None), backend_bucket(None), launch_bucket()]
    found: Any = resolve(buckets, collect(buckets, config=config, flags=entries)).models[LAUNCH]
    settings: LaunchSettings = found
    return settings


def prepare(
    session: Session, call: Given, *, dry_run: bool = False, place: tuple[Platform, int, int] | None = None
) -> tuple[JobPlan, Servers]:
    """Look at the machine and the model, choose, check. Says what a user should know of it.

    place: (what a node is, nodes, GPUs on each) when this machine is not the one that serves.
    """
    import atropos_cli
    from atropos_cli.domain.job import JobPlan, Resources
    from atropos_cli.serving.platforms import Platform, detect
    from atropos_cli.serving.prepare import check_ports, look_up
    from atropos_cli.serving.servers import ServerRequest, plan_servers
    from atropos_cli.serving.state import default_name

    here = place is None
    if place is None:
        machine = detect()
        place = (machine, 1, len(machine.gpus))
        wanted = call.settings.gpus or 0
        if dry_run and wanted > len(machine.gpus):
            session.out.note(f"{len(machine.gpus)} of {wanted} GPUs are here: planned for a machine that has them")
            place, here = (Platform("gpu"), 1, wanted), False
    platform, nodes, gpus = place
    request = ServerRequest(
        engine=call.engine,
        model=call.model,
        settings=call.settings,
        extra=call.extra,
        nodes=nodes,
        gpus_per_node=gpus,
        platform=platform,
        info=None if call.model == _ANY else look_up(call.model, offline=offline(), ask_hub=gpus > 0),
        program=_program(session, call, here=here, dry_run=dry_run),
    )
    planned = plan_servers(request, strict=call.strict)
    for text in (*planned.notes, *([platform.problem] if platform.problem else [])):
        session.out.warning(text)
    if here:
        check_ports(call.settings.port, len(planned.heads))
    plan = JobPlan(
        atropos_version=atropos_cli.__version__,
        name=call.name or default_name(call.model),
        components=planned.components,
        resources=Resources(nodes=nodes, gpus_per_node=gpus),
        cwd=str(Path.cwd()),
        expose=call.settings.host != "127.0.0.1",
        start_timeout=call.settings.start_timeout,
    )
    return plan, planned


def _program(session: Session, call: Given, *, here: bool, dry_run: bool) -> tuple[str, ...] | None:
    """The words that start the engine; None: its name, to be found on PATH where it runs."""
    from atropos_cli.serving.command import MODULES
    from atropos_cli.serving.prepare import engine_program

    python = call.settings.engine_python
    if not here and python is not None:
        return (python, *MODULES[call.engine])
    try:
        return engine_program(call.engine, python)
    except LaunchError as error:
        if not dry_run:
            raise
        session.out.warning(error.message, error.hint)
        return None


def offline() -> bool:
    """Is the hub out of bounds?"""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


def note(call: Given, plan: JobPlan, launcher: str = "local") -> tuple[Path, ServerRecord]:
    """Write the server's folder. Raises LaunchError when the name is in use."""
    from atropos_cli.jobs.folder import write_job
    from atropos_cli.serving.state import running, server_folder, taken, write_record

    folder = server_folder(plan.name)
    if running(folder):
        raise taken(folder)
    write_job(plan, folder)
    record = _record(call, plan.name, launcher)
    write_record(folder, record)
    return folder, record


def _record(call: Given, name: str, launcher: str) -> ServerRecord:
    import socket
    import time

    from atropos_cli.serving.record import ServerRecord

    return ServerRecord(
        name=name,
        engine=call.engine,
        model=call.model,
        served_name=call.settings.served_name or call.model,
        launcher=launcher,
        host=socket.gethostname(),
        started=time.time(),
    )


def _begun(session: Session, record: ServerRecord) -> ExitCode:
    from atropos_cli.cli.servers import status_command

    end(session.out, f"{record.name} is starting", status_command(record))
    return ExitCode.OK


def _show(session: Session, call: Given, plan: JobPlan, planned: Servers) -> None:
    """The dry run."""
    import shlex

    if call.as_json:
        session.out.json(
            {
                "plan": plan.model_dump(mode="json"),
                "tp": planned.layout.tp,
                "dp": planned.layout.dp,
                "defaults": planned.defaults.as_json(),
                "notes": list(planned.notes),
            }
        )
        return
    for item in plan.components:
        words = [f"{key}={shlex.quote(value)}" for key, value in item.env.items()]
        if item.gpus is not None:
            words.insert(0, f"CUDA_VISIBLE_DEVICES={','.join(map(str, item.gpus))}")
        port = f"  (port {item.port})" if item.port else ""
        session.out.data(f"{item.name}: {' '.join([*words, shlex.join(item.argv)])}{port}")
    end(session.out, f"would start {counted(len(plan.components), 'component')}", again(session.args))


def _in_tmux(session: Session, call: Given, *, wait: bool) -> int:
    """Run the noted server in the foreground of a tmux session."""
    from atropos_cli.cli import servers
    from atropos_cli.cli.launchers import make_launcher
    from atropos_cli.ports.launcher import JobSpec

    plan, _ = prepare(session, call)
    folder, record = note(call, plan, "tmux")
    command = (f"launch-{call.engine}", "--held", str(folder))
    job = JobSpec(name=f"server-{plan.name}", run=str(folder), command=command, cwd=str(Path.cwd()))
    launcher = make_launcher(session, "tmux")
    number = launcher.submit(job)
    session.out.note(f"atropos tmux attach {number} shows it")
    if not wait:
        return _begun(session, record)

    def alive() -> bool:
        return launcher.status(number).state in ("pending", "running")

    return servers.wait_ready(session, folder, alive, as_json=call.as_json)


def _in_slurm(session: Session, call: Given, given: dict[str, Any]) -> int:
    """Serve in a batch job: sizes come from --gpus and --nodes, since this machine is not the one that serves."""
    from atropos_cli.cli import launchslurm
    from atropos_cli.serving.platforms import Platform, detect
    from atropos_cli.serving.state import default_name, read_server, server_folder, write_record

    gpus = call.settings.gpus or 0
    platform = Platform("gpu") if gpus else Platform("cpu", memory=detect().memory)
    open_to_all = replace(call, settings=call.settings.replace(host="0.0.0.0", gpus=None))  # noqa: S104
    plan, _ = prepare(session, open_to_all, dry_run=True, place=(platform, given["nodes"], gpus))
    folder = server_folder(call.name or default_name(call.model))
    before = read_server(folder)
    if before is not None and before.state in ("starting", "ready") and not given["dry_run"]:
        raise LaunchError(f"a server {folder.name!r} is {before.state} already", hint="give another --name")
    batch = launchslurm.Batch(given["nodes"], gpus, given["time_limit"], given["profile"], given["config"])
    number = launchslurm.submit(session, plan, folder, batch, dry_run=given["dry_run"], as_json=call.as_json)
    if number is None:
        return ExitCode.OK
    record = _record(open_to_all, folder.name, "slurm").replace(job_id=number, host="")
    write_record(folder, record)
    if not given["wait"]:
        return _begun(session, record)
    return launchslurm.wait_ready(session, folder, as_json=call.as_json)


sglang = launch_command("sglang")
vllm = launch_command("vllm")
