"""`atropos tmux run|status|logs|stop|attach|list`: commands that go on after logout, here or over ssh."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.sdk import ConfigError, UsageError
from atropos_cli.sdk.commands import (
    CommandOptions,
    ExitCode,
    JsonOption,
    Session,
    counted,
    data_stream,
    end,
    give_back_stdout,
    option,
    put_once,
    shell,
    variable,
    with_flags,
)
from atropos_cli.sdk.data import home
from atropos_cli.sdk.launchers import JobSpec, check_setup, parse_limit

if TYPE_CHECKING:
    from atropos_tmux.ssh import Remote

app = typer.Typer(help="Run commands in tmux: they go on after logout and keep their log and exit code.")
PLACE, CODE = "Where", "Its code"

NameArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.", show_default=False)]


class PlaceOptions(CommandOptions):
    """The machine and the tmux server."""

    host: str | None = option(None, "Another machine, by ssh.", panel=PLACE, metavar="USER@HOST")
    remote_python: str | None = option(
        None,
        "Interpreter there that has atropos (or ATROPOS_REMOTE_PYTHON).  [default: that of atropos on its PATH]",
        panel=PLACE,
        metavar="PATH",
        variable="REMOTE_PYTHON",
    )
    ssh_config: Path | None = option(None, "Instead of ~/.ssh/config.", panel=PLACE, metavar="FILE")
    socket: str = option("atropos", "The tmux server's socket (tmux -L).", panel=PLACE, metavar="NAME")

    @property
    def remote(self) -> Remote:
        """The other machine, where a host is named."""
        from atropos_tmux.ssh import Remote

        return Remote(self.host or "", self.remote_python, self.ssh_config)


class RunOptions(PlaceOptions):
    """How a job is started."""

    name: str | None = option(None, "The job's name.  [default: from the command]", metavar="NAME")
    cwd: str | None = option(None, "Where it runs.  [default: here; with --host the home]", metavar="DIR")
    env: tuple[str, ...] = option(
        (),
        "A variable for the job; by NAME alone its value is taken from here and shows on no command line.",
        metavar="NAME[=VALUE]",
    )
    gpus: int = option(0, "Free GPUs that the job needs, and gets.", ge=0, metavar="N")
    setup: tuple[str, ...] = option(
        (), "A line of bash before the command; a failing one ends the job.", panel=CODE, metavar="LINE"
    )
    sync: Path | None = option(
        None,
        "Copy this folder to --host first, and run there; what git ignores stays out.",
        panel=CODE,
        metavar="DIR",
    )
    sync_limit: str = option("1G", "The most that is copied.", panel=CODE, metavar="SIZE")
    attach: bool = option(False, "Show the session instead of returning at once.")
    detach: bool = option(False, "Return at once, as without --attach.", hidden=True)
    dry_run: bool = option(False, "Print what would be started, and stop.")


class LogsOptions(PlaceOptions):
    """Which lines are printed."""

    follow: bool = option(False, "Go on until the job ends.", short="f")


class StopOptions(PlaceOptions):
    """How a job is stopped."""

    grace: float = option(60.0, "Seconds it gets to save its work before it is killed.", ge=0)


class ListOptions(PlaceOptions):
    """Which jobs are listed."""

    forget: bool = option(False, "Drop ended jobs from the list, and their sessions.")


_KEYS = {"command", "profile", "profiles"}.union(
    *(model.model_fields for model in (RunOptions, LogsOptions, StopOptions, ListOptions))
)


@app.command("run", context_settings={"allow_interspersed_args": False})
@with_flags("tmux", RunOptions, others=_KEYS)
def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="Any atropos command with its options.", show_default=False),
    ],
    *,
    options: RunOptions,
    session: Session,
    as_json: JsonOption = False,
) -> int:
    """Start an atropos command in tmux.

    atropos tmux run --name play -- gen textworld --limit 100 --output runs/play
    """
    socket, name, dry_run = options.socket, options.name, options.dry_run
    attach = options.attach and not options.detach
    words = command[1:] if command[0] == "atropos" else command
    if not words or words[0].startswith("-"):
        raise UsageError("give the command to run", hint="atropos tmux run -- gen textworld --limit 10")
    given, lines = _variables(options.env), check_setup(options.setup)
    if options.sync is not None and not options.host:
        raise UsageError(
            "--sync brings code to another machine: --host is missing",
            hint="atropos job submit --on tmux --sync DIR runs in a copy here",
        )
    if attach and as_json:
        raise UsageError("--attach and --json exclude each other", hint="drop one of them")
    if attach and not dry_run:
        _require_terminal()
    if not options.host:
        check_command(session, words)
        job = _job(socket, name, words, options.cwd, given)
        job = job.replace(setup=lines, resources={"gpus_per_node": options.gpus})
        return _start(session, socket, job, attach=attach, dry_run=dry_run, as_json=as_json)
    if name is None and attach:
        name = f"{_default_name(words)}-{datetime.now():%H%M%S}"
    flags = [*(["--name", name] if name else []), *(["--json"] if as_json else [])]
    flags += [*(["--dry-run"] if dry_run else []), *(word for key in given for word in ("--env", key))]
    flags += [
        *(word for line in lines for word in ("--setup", line)),
        *(["--gpus", str(options.gpus)] * bool(options.gpus)),
    ]
    remote, cwd = options.remote, options.cwd
    if options.sync is not None:
        flags += ["--cwd", bring_code(session, options, remote)]
        cwd = None
    code = remote.run(["tmux", "run", "--socket", socket, *flags, "--", *words], cwd=cwd, env=given)
    if code == ExitCode.OK and attach and not dry_run and name:
        _attach_there(remote, socket, name)
    return exit_code(code)


def bring_code(session: Session, options: RunOptions, remote: Remote) -> str:
    """Bring the folder of --sync to the host; the working directory there."""
    from atropos_cli.sdk.code import code_folder, look, size_text

    source, here = code_folder(Path(home(str(options.sync)))), Path.cwd().resolve()
    found = look(source, most=parse_limit(options.sync_limit, "--sync-limit"))
    for note in (f"code: {found.describe()}", *found.notes):
        session.out.note(note)
    answer = remote.bring(found, options.cwd, dry_run=options.dry_run)
    place = str(answer["place"])
    if options.dry_run:
        session.out.note(f"{answer['need']} files, {size_text(answer['size'])}, would be sent to {place}")
    else:
        session.out.note(f"{answer['sent']} files sent to {options.host}:{place}")
    for note in answer.get("notes", ()):
        session.out.note(note)
    return str(Path(place) / here.relative_to(source)) if here.is_relative_to(source) else place


@app.command("status")
@with_flags("tmux", PlaceOptions, others=_KEYS)
def status(job: NameArgument, *, options: PlaceOptions, session: Session, as_json: JsonOption = False) -> int:
    """How a job stands. The exit code is 1 when it failed."""
    if options.host:
        return _there(options, "status", job, as_json=as_json)
    out, launcher = session.out, _launcher(options.socket)
    found, folder = launcher.status(job), launcher.folder(job)
    shown = {**found.model_dump(mode="json"), "folder": str(folder), "log": str(folder / "log.txt")}
    known = launcher.known(folder)
    if as_json:
        out.json(shown | known)
    else:
        if "code" in known:
            shown["code"] = str(known["code"]["commit"]) + (" and changes" if known["code"]["changed"] else "")
        out.details({key: str(value) for key, value in shown.items() if value is not None})
        if found.state == "failed" and (folder / "log.txt").exists():
            for line in list(launcher.logs(job))[-5:]:
                out.note(f"  | {line}")
        end(out, f"{job} {found.state}", _following(job, found.state, options.socket))
    return ExitCode.FAILED if found.state == "failed" else ExitCode.OK


@app.command("logs")
@with_flags("tmux", LogsOptions, others=_KEYS)
def logs(job: NameArgument, *, options: LogsOptions, session: Session) -> int:
    """Print what a job has written, from the first byte."""
    if options.host:
        return _there(options, "logs", *(["--follow"] if options.follow else []), job)
    for line in _launcher(options.socket).logs(job, follow=options.follow):
        session.out.data(line)
        if options.follow:
            data_stream().flush()
    return ExitCode.OK


@app.command("stop")
@with_flags("tmux", StopOptions, others=_KEYS)
def stop(job: NameArgument, *, options: StopOptions, session: Session, as_json: JsonOption = False) -> int:
    """Stop a job and everything it started. Its log and exit code stay."""
    if options.host:
        return _there(options, "stop", "--grace", str(options.grace), job, as_json=as_json)
    launcher = _launcher(options.socket, options.grace)
    launcher.cancel(job)
    found, out = launcher.status(job), session.out
    if as_json:
        out.json(found.model_dump(mode="json"))
    else:
        code = "" if found.exit_code is None else f", exit code {found.exit_code}"
        end(out, f"{found.id}: {found.state}{code}", shell("tmux", "logs", found.id, *_at(options.socket)))
    return ExitCode.OK


@app.command("attach")
@with_flags("tmux", PlaceOptions, others=_KEYS)
def attach(job: NameArgument, *, options: PlaceOptions) -> None:
    """Show a job's session on this terminal; Ctrl-b d leaves it running."""
    _require_terminal()
    if options.host:
        _attach_there(options.remote, options.socket, job)
    launcher = _launcher(options.socket)
    launcher.folder(job)
    _attach_here(launcher, job)


@app.command("list")
@with_flags("tmux", ListOptions, others=_KEYS)
def list_jobs(*, options: ListOptions, session: Session, as_json: JsonOption = False) -> int:
    """List jobs, the oldest first."""
    if options.host:
        return _there(options, "list", *(["--forget"] if options.forget else []), as_json=as_json)
    out, launcher = session.out, _launcher(options.socket)
    rows = [(launcher.status(name), folder) for name, folder in launcher.jobs()]
    if options.forget:
        for found, _ in rows:
            if found.state not in ("running", "pending"):
                launcher.forget(found.id)
        rows = [row for row in rows if row[0].state in ("running", "pending")]
    if as_json:
        out.json([{**found.model_dump(mode="json"), "folder": str(folder)} for found, folder in rows])
        return ExitCode.OK
    codes = ["" if found.exit_code is None else str(found.exit_code) for found, _ in rows]
    table = [(found.id, found.state, code, str(folder)) for (found, folder), code in zip(rows, codes, strict=True)]
    out.table(table, header=("job", "state", "code", "folder"))
    following = ("status", rows[-1][0].id, *_at(options.socket)) if rows else ("run", "--help")
    end(out, counted(len(rows), "job") if rows else "no jobs", shell("tmux", *following))
    return ExitCode.OK


def _at(socket: str) -> tuple[str, ...]:
    """The socket, where it is not the usual one."""
    return () if socket == "atropos" else ("--socket", socket)


def _following(job: str, state: str, socket: str) -> str:
    """What to do with a job in this state."""
    return shell("tmux", "logs", *(["-f"] if state == "running" else []), job, *_at(socket))


def check_command(session: Session, words: list[str]) -> None:
    """Is it a command of this program that can run without a terminal? Raises UsageError."""
    if words[0] == "tmux":
        raise UsageError("a tmux job cannot be another atropos tmux")
    session.check_command(words[0])


def exit_code(code: int) -> ExitCode:
    """The far side's exit code as ours; what is none of them is a failed launch."""
    return ExitCode(code) if code in set(ExitCode) else ExitCode.LAUNCH


def _launcher(socket: str, grace: float = 60.0) -> Any:
    from pydantic import ValidationError

    from atropos_tmux.launcher import TmuxConfig, TmuxLauncher

    try:
        return TmuxLauncher(TmuxConfig(socket=socket, grace=grace))
    except ValidationError as error:
        reasons = "; ".join(f"{item['loc'][0]}: {item['msg']}, got {item['input']!r}" for item in error.errors())
        raise ConfigError(f"launcher 'tmux': {reasons}") from error


def _job(socket: str, name: str | None, words: list[str], cwd: str | None, env: dict[str, str]) -> JobSpec:
    from atropos_tmux.client import session_name

    launcher = _launcher(socket)
    if name is None:
        base, number = _default_name(words), 2
        taken = {session for session, _ in launcher.jobs()}
        name = base
        while session_name(name) in taken:
            name, number = f"{base}-{number}", number + 1
    folder = launcher.state_folder / session_name(name)
    return JobSpec(
        name=name, run=str(folder), command=tuple(words), cwd=str(Path(home(cwd or ".")).absolute()), env=env
    )


def _start(session: Session, socket: str, job: JobSpec, *, attach: bool, dry_run: bool, as_json: bool) -> int:
    out, launcher = session.out, _launcher(socket)
    if dry_run:
        start = launcher.start_of(job)
        shown = {**start, "env": sorted(job.env), "folder": f"{job.run}/tmux", "script": launcher.render(job)}
        if as_json:
            out.json(shown)
        else:
            out.details({key: value if isinstance(value, str) else json.dumps(value) for key, value in shown.items()})
        return ExitCode.OK
    name = launcher.submit(job)
    folder = launcher.folder(name)
    if as_json:
        out.json({"id": name, "folder": str(folder), "log": str(folder / "log.txt"), "socket": socket})
        return ExitCode.OK
    extra = _at(socket)
    out.note(f"started {name}: {shlex.join(job.command)}")
    for verb in ("status", "attach", "stop"):
        out.note(f"  {shell('tmux', verb, name, *extra)}")
    end(out, name, shell("tmux", "logs", "-f", name, *extra), data=True)
    if attach:
        _attach_here(launcher, name)
    return ExitCode.OK


def _default_name(words: list[str]) -> str:
    plain = [word for word in words[:2] if not word.startswith("-")]
    return "-".join(re.sub(r"[^A-Za-z0-9_-]+", "-", word).strip("-") for word in plain)[:40].strip("-") or "job"


def _variables(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, value = variable(text)
        put_once(found, name, os.environ[name] if value is None else value, "--env")
    return found


def _there(options: PlaceOptions, verb: str, *words: str, as_json: bool = False) -> int:
    """The command on the other machine."""
    json_too = ["--json"] if as_json else []
    return exit_code(options.remote.run(["tmux", verb, "--socket", options.socket, *json_too, *words]))


def _require_terminal() -> None:
    if not (sys.stdin.isatty() and data_stream().isatty()):
        raise UsageError("attaching needs a terminal", hint="atropos tmux logs -f JOB works without one")


def _attach_here(launcher: Any, name: str) -> None:
    from atropos_tmux.client import session_name

    argv = launcher.tmux.attach_command(session_name(name))
    give_back_stdout()
    os.execve(argv[0], argv, {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")})  # noqa: S606


def _attach_there(remote: Remote, socket: str, name: str) -> None:
    from atropos_tmux.client import session_name

    _launcher(socket)  # checks the socket's name, which stands in the line below
    remote.execute(f"tmux -L {socket} attach-session -t '={session_name(name)}'")
