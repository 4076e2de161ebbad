"""`atropos slurm submit|status|logs|cancel|list`: any atropos command as a SLURM job, with its servers if wanted."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.cli.lazy import new_app
from atropos_cli.cli.options import ConfigOption, JsonOption, glance
from atropos_cli.cli.slurmsubmit import Manner, carry_on, print_status
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.session import Session, session_of
from atropos_cli.errors import ExitCode, LaunchError, UsageError

if TYPE_CHECKING:
    from atropos_cli.builtin.slurm.launcher import SlurmLauncher
    from atropos_cli.domain.job import Resources

app = new_app(help="Run atropos commands as SLURM jobs, on one node or many.")
SIZE, SERVERS, JOB = "What the job needs", "Servers", "The job"


class Engine(StrEnum):
    """Inference servers that a job can start."""

    sglang = "sglang"
    vllm = "vllm"


ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="Cluster profile, [slurm.profiles.NAME].", show_default=False),
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
    sbatch: Annotated[
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

    atropos slurm submit --nodes 2 --gpus-per-node 8 --time 24h --serve vllm -- gen textworld --model M
    """
    from atropos_cli.builtin.slurm.values import parse_memory, parse_time
    from atropos_cli.cli import slurmjobs
    from atropos_cli.cli.slurmdefault import described_command
    from atropos_cli.domain.job import Resources

    session = session_of(ctx)
    if not command:
        command = described_command(config)
        session.out.note(f"submitting what this folder describes: {shlex.join(command)}")
    if len(command) == 1 and command[0].endswith((".toml", ".yaml", ".yml")):
        from atropos_cli.cli.commands.pipeline import submit_file

        _refuse_options(ctx, ("command", "folder", "profile", "dry_run", "as_json", "debug", "strict_plugins"))
        return submit_file(session, Path(command[0]), folder, profile=profile, dry_run=dry_run, as_json=as_json)
    launcher = make_launcher(session, profile, config)
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
        asked = model or next(iter(glance(command, "model")), None)
        if asked is None:
            raise UsageError(f"--serve {serve.value} needs a model", hint="--model MODEL, there or for the command")
        servers = slurmjobs.Serve(serve.value, asked, tp, dp, engine_python, tuple(server_option or ()))
        if not glance(command, "model"):
            command = [*command, "--model", asked]
    elif model or tp or dp or server_option or engine_python:
        raise UsageError("options of servers need --serve sglang or --serve vllm")
    request = slurmjobs.Request(
        words=tuple(command),
        resources=resources,
        name=name,
        folder=folder,
        after=tuple(_job_id(text) for text in after or ()),
        serve=servers,
        env=slurmjobs.variables(env or []),
        options=slurmjobs.options(sbatch or []),
        start_timeout=start_timeout,
        max_requeues=max_requeues,
    )
    # What a training reads may be made by the job it waits for.
    check = check and not (after and command[0] == "train")
    manner = Manner(check=check, wait=wait, dry_run=dry_run, as_json=as_json)
    return carry_on(session, launcher, request, manner)


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


def make_launcher(session: Session, profile: str | None, config: Path | None) -> SlurmLauncher:
    """The launcher with a cluster's profile."""
    from atropos_cli.config.slurm import slurm_profile
    from atropos_cli.rollout.planner import make_config

    name, options = slurm_profile(profile, config)
    cls = session.registry.find("launcher", "slurm").load()
    owner = f"SLURM profile {name!r}" if name else "launcher 'slurm'"
    launcher: SlurmLauncher = cls(make_config(cls.Config, options, owner=owner, env_prefix="ATROPOS_SLURM__"))
    return launcher


def _job_id(text: str) -> str:
    from atropos_cli.cli.slurmview import find

    return find(text).id


@app.command("status")
def status(
    ctx: typer.Context,
    job: JobArgument,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """How a job stands, from its folder and from SLURM. The exit code is 1 when it failed."""
    from atropos_cli.cli.slurmview import find, view

    session = session_of(ctx)
    found = view(find(job), make_launcher(session, profile, config))
    if as_json:
        session.out.json(found)
    else:
        print_status(session.out, found)
        end(session.out, f"job {found['id']} {found['state']}", _following(found))
    return ExitCode.FAILED if found["state"] in ("failed", "cancelled", "lost") else ExitCode.OK


def _following(found: dict[str, Any]) -> str:
    """What to do with a job in this state."""
    if found["state"] == "finished":
        return shell("view", Path(found["folder"]))
    return shell("slurm", "logs", *(["-f"] if found["state"] == "running" else []), str(found["id"]))


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
    profile: ProfileOption = None,
    config: ConfigOption = None,
) -> int:
    """Print what a component has written; without a name the command, or the supervisor before it started."""
    from atropos_cli.cli import slurmview

    session = session_of(ctx)
    found = slurmview.find(job)
    launcher = make_launcher(session, profile, config)
    if shard is None and (found.folder / "shards").is_dir():
        shard = 0
        session.out.note("shard 0; the others with --shard N")
    names = slurmview.log_names(found, shard)
    if component not in (None, "job", *names) and not follow:
        raise UsageError(f"there is no log of {component!r}", hint=f"there are: job, {', '.join(names)}")
    if component is None:
        component = "main" if "main" in names or follow else "job"
    path = slurmview.log_path(found, None if component == "job" else component, shard)
    if follow:
        for line in slurmview.follow(path, found, launcher):
            session.out.data(line)
        return ExitCode.OK
    if not path.exists():
        stands = slurmview.view(found, launcher)
        raise LaunchError(f"{path} is not there; the job is {stands['state']}", hint=stands["reason"])
    with path.open(errors="replace") as file:
        for line in file:
            session.out.data(line.rstrip("\n"))
    return ExitCode.OK


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Folder, id or name.", show_default=False)],
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """Cancel jobs, and wait until SLURM says that they are over."""
    from atropos_cli.cli.slurmview import find

    session = session_of(ctx)
    launcher = make_launcher(session, profile, config)
    rows = []
    for text in jobs:
        job = find(text)
        launcher.cancel(job.id)
        state = launcher.status(job.id).state
        rows.append({"id": job.id, "state": state})
        if not as_json:
            session.out.data(f"job {job.id} is {state}")
    if as_json:
        session.out.json(rows)
    else:
        end(session.out, f"cancelled {counted(len(rows), 'job')}", shell("slurm", "list"))
    return ExitCode.OK


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="All, and not only the newest 20.")] = False,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> int:
    """List the jobs submitted from here whose folders are still there, the oldest first."""
    from atropos_cli.cli.slurmview import submitted_jobs, view

    session = session_of(ctx)
    launcher = make_launcher(session, profile, config)
    found = submitted_jobs()
    views = [view(job, launcher) for job in (found if everything else found[-20:])]
    if as_json:
        session.out.json(views)
    else:
        rows = [(str(item["id"]), item["state"], item["name"], item["folder"]) for item in views]
        session.out.table(rows, header=("id", "state", "name", "folder"))
        following = ("status", str(views[-1]["id"])) if views else ("submit", "--help")
        end(session.out, counted(len(rows), "job") if rows else "no jobs", shell("slurm", *following))
    return ExitCode.OK
