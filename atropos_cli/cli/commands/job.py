"""`atropos job submit|status|logs|cancel|list`: any atropos command as a job of any launcher.

`atropos slurm` is the same with --on slurm: `launcher_group`.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.jobdefault import described_command
from atropos_cli.cli.joborders import Wanted, make_order
from atropos_cli.cli.jobs import Face, print_status, print_submitted, wait_for
from atropos_cli.cli.launchers import native_options, variables
from atropos_cli.cli.lazy import new_app
from atropos_cli.console.commands import ConfigOption, JsonOption
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.session import session_of
from atropos_cli.errors import ComponentNotFound, ExitCode, LaunchError, UsageError
from atropos_cli.jobs.dryrun import show
from atropos_cli.jobs.launchers import make_launcher
from atropos_cli.ports.serving import Serve

if TYPE_CHECKING:
    from atropos_cli.domain.job import Resources
    from atropos_cli.jobs.store import Submitted
    from atropos_cli.ports.launcher import Launcher

app = new_app(help="Run atropos commands as jobs: on a cluster, in tmux, wherever a launcher can.")
_EXAMPLE = ("gen", "textworld", "--limit", "10")
SIZE, SERVERS, JOB = "What the job needs", "Servers", "The job"


class Engine(StrEnum):
    """Inference servers that a job can start."""

    sglang = "sglang"
    vllm = "vllm"


ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Cluster profile, [slurm.profiles.NAME].", show_default=False),
]
OnOption = Annotated[
    str | None, typer.Option("--on", metavar="LAUNCHER", help="Only jobs of this launcher.", show_default=False)
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Folder, id or name of a job.", show_default=False)]


def _size(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=SIZE, show_default=settings.pop("show_default", False), **settings)


def _server(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=SERVERS, show_default=settings.pop("show_default", False), **settings)


def _job(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=JOB, show_default=settings.pop("show_default", False), **settings)


@app.command("submit", context_settings={"allow_interspersed_args": False})
def submit(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...",
            help="Any atropos command with its options.  [default: what this folder describes]",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str, typer.Option("--on", metavar="LAUNCHER", help="What starts it: slurm, tmux, ...", show_default=False)
    ] = ...,  # type: ignore[assignment]
    on_option: Annotated[
        list[str] | None, _job("--on-option", metavar="KEY=VALUE", help="An option of the launcher. Repeatable.")
    ] = None,
    nodes: Annotated[int, _size("--nodes", min=1, help="Nodes.", show_default=True)] = 1,
    gpus_per_node: Annotated[int, _size("--gpus-per-node", min=0, help="GPUs on each.", show_default=True)] = 0,
    cpus: Annotated[int | None, _size("--cpus", min=1, help="CPU cores on each node.")] = None,
    mem: Annotated[str | None, _size("--mem", metavar="SIZE", help="Memory of each node: 64G, 1.5G; 0 is all.")] = None,
    time: Annotated[str | None, _size("--time", metavar="TIME", help="Time limit: 2h, 90m, 1d12h, D-HH:MM:SS.")] = None,
    array: Annotated[
        int | None, _size("--array", metavar="N", min=1, help="gen in N shards, each a job; they merge by themselves.")
    ] = None,
    array_limit: Annotated[int | None, _size("--array-limit", min=1, help="Shards that may run at once.")] = None,
    serve: Annotated[Engine | None, _server("--serve", help="Start inference servers beside the command.")] = None,
    model: Annotated[
        str | None, _server("--model", help="Model they serve.  [default: --model of the command]")
    ] = None,
    tp: Annotated[int | None, _server("--tp", min=1, help="GPUs that share one copy of the model.")] = None,
    dp: Annotated[int | None, _server("--dp", min=1, help="Independent servers.")] = None,
    engine_python: Annotated[
        str | None, _server("--engine-python", metavar="PATH", help="Interpreter that has the engine.")
    ] = None,
    server_option: Annotated[
        list[str] | None,
        _server("--server-option", metavar="WORD", help="A word for the engine: --server-option=--trust-remote-code."),
    ] = None,
    start_timeout: Annotated[
        float, _server("--start-timeout", min=1, help="Seconds until all servers must be ready.", show_default=True)
    ] = 1800.0,
    name: Annotated[str | None, _job("--name", help="The job's name.  [default: from the command]")] = None,
    folder: Annotated[
        Path | None, _job("--folder", metavar="DIR", help="The job's folder.  [default: --output of gen, or in runs/]")
    ] = None,
    after: Annotated[
        list[str] | None, _job("--after", metavar="JOB", help="Start when that job has succeeded. Repeatable.")
    ] = None,
    env: Annotated[
        list[str] | None,
        _job("--env", metavar="NAME[=VALUE]", help="A variable for the job; NAME alone must be set here. Repeatable."),
    ] = None,
    requeue: Annotated[
        bool, _job("--requeue", help="Stop before the time limit, save, queue again, go on there.")
    ] = False,
    max_requeues: Annotated[int, _job("--max-requeues", min=0, help="How often.", show_default=True)] = 10,
    signal_before: Annotated[
        int | None, _job("--signal-before", metavar="S", min=1, help="Seconds before the limit.  [default: 120]")
    ] = None,
    native: Annotated[
        list[str] | None, _job("--sbatch", metavar="KEY[=VALUE]", help="Another option of sbatch. Repeatable.")
    ] = None,
    profile: ProfileOption = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Let gen, eval and train check their options first.")
    ] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit with the job's code.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print script, plan and call; submit nothing.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Submit an atropos command, or a pipeline file, whose steps become jobs that wait for each other.

    atropos job submit --on slurm --nodes 2 --gpus-per-node 8 --time 24h --serve vllm -- gen textworld --model M
    """
    from atropos_cli.config.sizes import parse_memory, parse_time
    from atropos_cli.domain.job import Resources
    from atropos_cli.jobs.prepare import prepare
    from atropos_cli.jobs.prepare import submit as submit_job
    from atropos_cli.jobs.store import find, read_submitted

    session, face = session_of(ctx), face_of(ctx)
    if not command:
        command = described_command(session, on, config)
        session.out.note(f"submitting what this folder describes: {shlex.join(command)}")
    if len(command) == 1 and command[0].endswith((".toml", ".yaml", ".yml")):
        from atropos_cli.cli.commands.pipeline import submit_file

        _refuse_options(ctx, ("on", "command", "folder", "profile", "dry_run", "as_json", "debug", "strict_plugins"))
        launcher = make_launcher(session, on, on_option or (), profile)
        return submit_file(session, Path(command[0]), folder, launcher, dry_run=dry_run, as_json=as_json)
    launcher = make_launcher(session, on, on_option or (), profile, config)
    resources = Resources(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus,
        mem_mb=None if mem is None else parse_memory(mem),
        time_s=None if time is None else parse_time(time),
        array=array,
        array_limit=array_limit,
        signal_before_s=signal_before,
        requeue=requeue,
    )
    _check_times(resources, requeue=requeue)
    servers = None
    if serve is not None:
        servers = Serve(serve.value, model, tp, dp, engine_python, tuple(server_option or ()))
    elif model or tp or dp or server_option or engine_python:
        raise UsageError("options of servers need --serve sglang or --serve vllm")
    wanted = Wanted(
        resources=resources,
        serve=servers,
        # The data of a training may be made by the job that it depends on.
        check=check and not (after and command[0] == "train"),
        name=name,
        folder=folder,
        after=tuple(find(text, on).id for text in after or ()),
        env=variables(env or []),
        options=native_options(launcher, native or []),
        start_timeout=start_timeout,
        max_requeues=max_requeues,
    )
    order = make_order(session, command, wanted, example=face.line("submit", "--time", "2h", "--", *_EXAMPLE))
    prepared = prepare(order, launcher)
    launcher.render(prepared.spec)  # complains before anything else is done
    for note in prepared.notes:
        session.out.note(note)
    if dry_run:
        return show(session.out, launcher, prepared, as_json=as_json)
    submit_job(prepared, launcher)
    job = read_submitted(prepared.folder)
    if not wait:
        print_submitted(session.out, job, launcher, face, as_json=as_json)
        return ExitCode.OK
    session.out.note(f"job {job.id} -> {job.folder}")
    return wait_for(session.out, launcher, job, face, as_json=as_json)


def face_of(ctx: typer.Context) -> Face:
    """The group that was called: `job`, or a launcher's own name."""
    return Face() if ctx.parent is None else Face((str(ctx.parent.info_name),))


def _refuse_options(ctx: typer.Context, allowed: tuple[str, ...]) -> None:
    """Options of a single job say nothing about the steps of a pipeline."""
    for param in ctx.command.params:
        source = ctx.get_parameter_source(str(param.name))
        if param.name not in allowed and source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{param.opts[0]} is not for a pipeline", hint="resources = {...} in its file says what each step needs"
            )


def _check_times(resources: Resources, *, requeue: bool) -> None:
    limit, before = resources.time_s, resources.signal_before_s
    before = before if before is not None or not requeue else 120
    if limit is not None and before is not None and before >= limit:
        raise UsageError(f"a signal {before} s before the end of {limit} s", hint="give a smaller --signal-before")


def _opened(
    ctx: typer.Context, job: str, on: str | None, profile: str | None, config: Path | None
) -> tuple[Submitted, Launcher]:
    """A submitted job and its launcher."""
    from atropos_cli.jobs.store import find

    found = find(job, on)
    return found, make_launcher(session_of(ctx), found.launcher, (), profile, config)


@app.command("status")
def status(
    ctx: typer.Context,
    job: JobArgument,
    on: OnOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """How a job stands, from its folder and from its launcher. The exit code is 1 when it failed."""
    from atropos_cli.jobs.status import view

    session = session_of(ctx)
    found = view(*_opened(ctx, job, on, profile, config))
    if as_json:
        session.out.json(found)
    else:
        print_status(session.out, found)
        end(session.out, f"job {found['id']} {found['state']}", _following(found, face_of(ctx)))
    return ExitCode.FAILED if found["state"] in ("failed", "cancelled", "lost") else ExitCode.OK


def _following(found: dict[str, Any], face: Face) -> str:
    """What to do with a job in this state."""
    if found["state"] == "finished":
        return shell("view", Path(found["folder"]))
    return face.line("logs", *(["-f"] if found["state"] == "running" else []), str(found["id"]))


@app.command("logs")
def logs(
    ctx: typer.Context,
    job: JobArgument,
    component: Annotated[
        str | None,
        typer.Argument(metavar="[COMPONENT]", help="main, server0, ...; job: the supervisor.", show_default=False),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    shard: Annotated[
        int | None, typer.Option("--shard", min=0, help="A shard of an array.", show_default=False)
    ] = None,
    on: OnOption = None,
    profile: ProfileOption = None,
    config: ConfigOption = None,
) -> int:
    """Print what a component has written; without a name the command, or the supervisor before it started."""
    from atropos_cli.jobs import follow as reading
    from atropos_cli.jobs.status import view

    out = session_of(ctx).out
    found, launcher = _opened(ctx, job, on, profile, config)
    if shard is None and (found.folder / "shards").is_dir():
        shard = 0
        out.note("shard 0; the others with --shard N")
    names = reading.log_names(found, shard)
    if component not in (None, "job", *names) and not follow:
        raise UsageError(f"there is no log of {component!r}", hint=f"there are: job, {', '.join(names)}")
    if component is None:
        component = "main" if "main" in names or follow else "job"
    path = launcher.output(found.spec, found.id, shard)
    if component != "job":
        path = reading.log_path(found, component, shard)
    if path is None:
        lines = launcher.logs(found.id, follow=follow)
    elif follow:
        lines = reading.lines(path, found, launcher)
    elif path.exists():
        lines = _stored(path)
    else:
        stands = view(found, launcher)
        raise LaunchError(f"{path} is not there; the job is {stands['state']}", hint=stands["reason"])
    for line in lines:
        out.data(line)
    return ExitCode.OK


def _stored(path: Path) -> Iterator[str]:
    with path.open(errors="replace") as file:
        for line in file:
            yield line.rstrip("\n")


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Folder, id or name.", show_default=False)],
    on: OnOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Cancel jobs, and wait until they are over."""
    session = session_of(ctx)
    rows = []
    for text in jobs:
        job, launcher = _opened(ctx, text, on, profile, config)
        launcher.cancel(job.id)
        state = launcher.status(job.id).state
        rows.append({"id": job.id, "state": state})
        if not as_json:
            session.out.data(f"job {job.id} is {state}")
    if as_json:
        session.out.json(rows)
    else:
        end(session.out, f"cancelled {counted(len(rows), 'job')}", face_of(ctx).line("list"))
    return ExitCode.OK


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="All, and not only the newest 20.")] = False,
    on: OnOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """List the jobs submitted from here whose folders are still there, the oldest first."""
    from atropos_cli.jobs.status import view
    from atropos_cli.jobs.store import submitted_jobs

    session = session_of(ctx)
    found = submitted_jobs(on)
    chosen = found if everything else found[-20:]
    launchers: dict[str, Launcher] = {}
    for name in dict.fromkeys(job.launcher for job in chosen):
        try:
            launchers[name] = make_launcher(session, name, (), profile, config)
        except ComponentNotFound as error:
            session.out.warning(f"its jobs are left out: {error.message}", error.hint)
    views = [view(job, launchers[job.launcher]) for job in chosen if job.launcher in launchers]
    if as_json:
        session.out.json(views)
    else:
        rows = [(str(item["id"]), item["state"], item["name"], item["folder"]) for item in views]
        session.out.table(rows, header=("id", "state", "name", "folder"))
        following = ("status", str(views[-1]["id"])) if views else ("submit", "--help")
        end(session.out, counted(len(rows), "job") if rows else "no jobs", face_of(ctx).line(*following))
    return ExitCode.OK


def launcher_group(launcher: str, doc: str) -> Any:
    """The commands of this group for one launcher, without --on."""
    group: Any = typer.main.get_command(app)
    group.help = doc
    for command in group.commands.values():
        command.params = [param for param in command.params if param.name != "on"]
        command.callback = functools.partial(_call_with, command.callback, launcher)
        said = f"atropos job submit --on {launcher}", f"atropos {launcher} submit"
        command.help = (command.help or "").replace(*said)
    return group


def _call_with(callback: Any, launcher: str, **given: Any) -> Any:
    return callback(**given, on=launcher)
