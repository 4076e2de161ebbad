"""`atropos job submit|status|logs|cancel|list`: any atropos command as a job of any launcher.

`atropos slurm` is the same with --on slurm: `launcher_group`.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from atropos_cli.cli.jobdefault import described_command
from atropos_cli.cli.joboptions import ListOptions, LogsOptions, ProfileOptions, SubmitOptions, WhichOptions
from atropos_cli.cli.joborders import make_order
from atropos_cli.cli.jobs import print_status, wait_for
from atropos_cli.cli.lazy import new_app
from atropos_cli.config.commands import command_bucket, resolve_command
from atropos_cli.config.launchers import FILE_KEYS, profile_variable
from atropos_cli.config.launchers import JOB as JOB_SECTION
from atropos_cli.config.places import PREFIX
from atropos_cli.config.resolve import Resolved
from atropos_cli.console.commands import JsonOption, command_with
from atropos_cli.console.ending import counted, end, shell
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, ConfigError, ExitCode, LaunchError, PluginError, UsageError
from atropos_cli.jobs.dryrun import show
from atropos_cli.jobs.face import Face, print_submitted
from atropos_cli.jobs.launchers import make_launcher, native_options, stored_name, variables
from atropos_cli.jobs.order import Order, Wanted
from atropos_cli.jobs.setup import check_setup
from atropos_cli.ports.serving import Serve

if TYPE_CHECKING:
    from atropos_cli.config.sources import Bucket
    from atropos_cli.domain.job import Resources
    from atropos_cli.jobs.store import Submitted
    from atropos_cli.ports.launcher import Launcher, LauncherCommands

_EXAMPLE = ("gen", "textworld", "--limit", "10")
_OF_PIPELINES = frozenset({"on", "on_option", "folder", "profile", "dry_run"})
"""Options that say something about a pipeline as well."""


JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="Folder, id or name of a job.", show_default=False)]


def submit(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...",
            help="Any atropos command with its options.  [default: what this folder describes]",
            show_default=False,
        ),
    ] = None,
    *,
    options: SubmitOptions,
    ctx: typer.Context,
    resolved: Resolved,
    config: Path | None,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """Submit an atropos command, or a pipeline file, whose steps become jobs that wait for each other.

    atropos job submit --on slurm --nodes 2 --gpus-per-node 8 --time 24h --serve vllm -- gen textworld --model M
    """
    from atropos_cli.cli.jobcode import prepared_with_code
    from atropos_cli.jobs.prepare import submit as submit_job
    from atropos_cli.jobs.store import read_submitted

    face = face_of(ctx)
    if options.on is None:
        raise UsageError("no launcher was named", hint="--on slurm, --on tmux, ...; or `on` in section [job] of a file")
    if not command:
        command = described_command(session, options.on, config)
        session.out.note(f"submitting what this folder describes: {shlex.join(command)}")
    launcher = make_launcher(session, options.on, options.on_option, options.profile, config)
    _check_section(ctx, launcher.name, config)
    if len(command) == 1 and command[0].endswith((".toml", ".yaml", ".yml")):
        from atropos_cli.plugins.jobfiles import submit_file

        _refuse_options(resolved)
        asked = {"path": Path(command[0]), "launcher": launcher, "folder": options.folder}
        return submit_file({**asked, "session": session, "dry_run": options.dry_run, "as_json": as_json})
    wanted = _wanted(options, command, launcher)

    def ordered(wanted: Wanted) -> Order:
        return make_order(session, command, wanted, example=face.line("submit", "--time", "2h", "--", *_EXAMPLE))

    prepared = prepared_with_code(ordered, wanted, launcher, options, session.out)
    launcher.render(prepared.spec)  # complains before anything else is done
    for note in prepared.notes:
        session.out.note(note)
    if options.dry_run:
        return show(session.out, launcher, prepared, as_json=as_json)
    submit_job(prepared, launcher)
    job = read_submitted(prepared.folder)
    if not options.wait:
        print_submitted(session.out, job, launcher, face, as_json=as_json)
        return ExitCode.OK
    session.out.note(f"job {job.id} -> {job.folder}")
    return wait_for(session.out, launcher, job, face, as_json=as_json)


def _wanted(options: SubmitOptions, command: Sequence[str], launcher: Launcher) -> Wanted:
    """What the options ask for. Raises UsageError where they do not fit together."""
    from atropos_cli.config.sizes import parse_memory, parse_time
    from atropos_cli.domain.job import Resources

    resources = Resources(
        nodes=options.nodes,
        gpus_per_node=options.gpus_per_node,
        cpus_per_node=options.cpus,
        mem_mb=None if options.mem is None else parse_memory(options.mem),
        time_s=None if options.time is None else parse_time(options.time),
        array=options.array,
        array_limit=options.array_limit,
        signal_before_s=options.signal_before,
        requeue=options.requeue,
    )
    _check_times(resources, requeue=options.requeue)
    servers = None
    if options.serve is not None:
        sizes = options.model, options.tp, options.dp
        servers = Serve(options.serve.value, *sizes, options.engine_python, options.server_option)
    elif options.model or options.tp or options.dp or options.server_option or options.engine_python:
        raise UsageError("options of servers need --serve sglang or --serve vllm")
    return Wanted(
        resources=resources,
        serve=servers,
        # The data of a training may be made by the job that it depends on.
        check=options.check and not (options.after and command[0] == "train"),
        name=options.name,
        folder=options.folder,
        after=_after(options, launcher),
        env=variables(options.env),
        options=native_options(launcher, options.sbatch),
        start_timeout=options.start_timeout,
        max_requeues=options.max_requeues,
        setup=check_setup(options.setup),
    )


def _after(options: SubmitOptions, launcher: Launcher) -> tuple[str, ...]:
    """The ids to wait for. A dry run asks no launcher."""
    from atropos_cli.jobs.asking import the_one_here
    from atropos_cli.jobs.follow import to_wait_for
    from atropos_cli.jobs.store import candidates

    named = [candidates(text, launcher.source or launcher.name) for text in options.after]
    jobs = [found[0] if options.dry_run else the_one_here(found, launcher) for found in named]
    found = [job.id if options.dry_run else to_wait_for(job, launcher) for job in jobs]
    return tuple(job_id for job_id in found if job_id is not None)


def face_of(ctx: typer.Context) -> Face:
    """The group that was called: `job`, or a launcher's own name."""
    return Face() if ctx.parent is None else Face((str(ctx.parent.info_name),))


def _refuse_options(resolved: Resolved) -> None:
    """Options of a single job say nothing about the steps of a pipeline."""
    for (_, path), origin in resolved.origins.items():
        if path[0] not in _OF_PIPELINES and origin.kind == "flag":
            raise UsageError(
                f"{origin.name} is not for a pipeline", hint="resources = {...} in its file says what each step needs"
            )


def _check_times(resources: Resources, *, requeue: bool) -> None:
    limit, before = resources.time_s, resources.signal_before_s
    before = before if before is not None or not requeue else 120
    if limit is not None and before is not None and before >= limit:
        raise UsageError(f"a signal {before} s before the end of {limit} s", hint="give a smaller --signal-before")


def _opened(session: Session, job: str, options: WhichOptions, config: Path | None) -> tuple[Submitted, Launcher]:
    """A submitted job and its launcher."""
    from atropos_cli.jobs.asking import the_one_here
    from atropos_cli.jobs.store import candidates

    found = candidates(job, stored_name(session, options.only))
    launcher = make_launcher(session, found[0].launcher, (), options.profile, config)
    return the_one_here(found, launcher), launcher


def status(
    job: JobArgument,
    *,
    options: WhichOptions,
    ctx: typer.Context,
    config: Path | None,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """How a job stands, from its folder and from its launcher. The exit code is 1 when it failed."""
    from atropos_cli.jobs.status import view

    found = view(*_opened(session, job, options, config))
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


def logs(
    job: JobArgument,
    component: Annotated[
        str | None,
        typer.Argument(metavar="[COMPONENT]", help="main, server0, ...; job: the supervisor.", show_default=False),
    ] = None,
    *,
    options: LogsOptions,
    config: Path | None,
    session: Session,
) -> int:
    """Print what a component has written; without a name the command, or the supervisor before it started."""
    from atropos_cli.jobs import follow as reading
    from atropos_cli.jobs.status import view

    out, follow, shard = session.out, options.follow, options.shard
    found, launcher = _opened(session, job, options, config)
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
        if path.resolve().parent.name in reading.earlier_attempts(path, found):
            out.note("of an earlier job in this folder: this one has not started")
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


def cancel(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", help="Folder, id or name.", show_default=False)],
    *,
    options: WhichOptions,
    ctx: typer.Context,
    config: Path | None,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """Cancel jobs, and wait until they are over."""
    from atropos_cli.jobs.asking import cancel as cancel_job

    rows = []
    failed: AtroposError | None = None
    for job, launcher in [_opened(session, text, options, config) for text in jobs]:
        try:
            state = cancel_job(job, launcher)
        except AtroposError as error:  # the others are cancelled all the same
            if failed is not None:
                session.out.warning(failed.message, failed.hint)
            failed = error
            continue
        rows.append({"id": job.id, "state": state})
        if not as_json:
            session.out.data(f"job {job.id} is {state}")
    if as_json:
        session.out.json(rows)
    if failed is not None:
        raise failed
    if not as_json:
        end(session.out, f"cancelled {counted(len(rows), 'job')}", face_of(ctx).line("list"))
    return ExitCode.OK


def list_jobs(
    *,
    options: ListOptions,
    ctx: typer.Context,
    config: Path | None,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """List the jobs submitted from here whose folders are still there, the oldest first."""
    from atropos_cli.jobs.status import view
    from atropos_cli.jobs.store import submitted_jobs

    found = submitted_jobs(stored_name(session, options.only))
    chosen = found if options.all else found[-20:]
    launchers: dict[str, Launcher] = {}
    for name in dict.fromkeys(job.launcher for job in chosen):
        try:
            launchers[name] = make_launcher(session, name, (), options.profile, config)
        except (PluginError, LaunchError, ConfigError) as error:
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


_COMMANDS: tuple[tuple[str, Callable[..., int], type[ProfileOptions]], ...] = (
    ("submit", submit, SubmitOptions),
    ("status", status, WhichOptions),
    ("logs", logs, LogsOptions),
    ("cancel", cancel, WhichOptions),
    ("list", list_jobs, ListOptions),
)


def jobs_app(doc: str, launcher: str | None = None) -> typer.Typer:
    """The commands, with options from section [job]; those of one launcher, without --on, from [LAUNCHER]."""
    made = new_app(help=doc)
    for name, function, model in _COMMANDS:
        bucket, known = _bucket(launcher, model)
        call = function if launcher is None else _with_options(function, known)
        made_command = command_with(call, bucket)
        if launcher is not None and function.__doc__:
            said = f"atropos job submit --on {launcher}", f"atropos {launcher} submit"
            made_command.__doc__ = function.__doc__.replace(*said)
        made.command(name, context_settings={"allow_interspersed_args": name != "submit"})(made_command)
    return made


def _bucket(launcher: str | None, model: type[ProfileOptions]) -> tuple[Bucket, dict[str, str]]:
    """The options of a command of `atropos job`, or of those of one launcher, and the facts known where it is named."""
    keys = {key for _, _, other in _COMMANDS for key in other.model_fields} | set(FILE_KEYS)
    bucket = command_bucket(launcher or JOB_SECTION, model, keys)
    if launcher is None:
        return bucket, {}
    known = {item.key: launcher for item in bucket.options if item.flag == "on"}
    left = tuple(item for item in bucket.options if item.key not in known)
    shared = {profile_variable(launcher).removeprefix(PREFIX).lower(): ("profile",)}
    return replace(bucket, options=left, others=bucket.others - known.keys(), shared=shared), known


def _check_section(ctx: typer.Context, launcher: str, config: Path | None) -> None:
    """A key of [LAUNCHER] that `atropos LAUNCHER` would refuse is refused by `atropos job`, too. Raises ConfigError."""
    group = ctx.find_root().command
    own = group.get_command(ctx, launcher) if isinstance(group, typer.core.TyperGroup) else None
    if set(getattr(own, "commands", ())) == {name for name, _, _ in _COMMANDS}:
        resolve_command(_bucket(launcher, SubmitOptions)[0], config)


def launcher_group(declared: LauncherCommands) -> Any:
    """The commands of this group for one launcher."""
    return typer.main.get_command(jobs_app(declared.help, declared.launcher))


def _with_options(function: Callable[..., int], known: dict[str, str]) -> Callable[..., int]:
    @functools.wraps(function)
    def call(*, options: ProfileOptions, **given: Any) -> int:
        return function(options=options.replace(**known), **given)

    return call


app = jobs_app("Run atropos commands as jobs: on a cluster, in tmux, wherever a launcher can.")
