"""`atropos tmux run|status|logs|stop|attach|list`: commands that go on after logout, here or over ssh."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atropos_cli.sdk import ConfigError, UsageError
from atropos_cli.sdk.commands import (
    ExitCode,
    JsonOption,
    Session,
    counted,
    data_stream,
    end,
    give_back_stdout,
    put_once,
    session_of,
    shell,
    variable,
)
from atropos_cli.sdk.data import home
from atropos_cli.sdk.launchers import JobSpec

if TYPE_CHECKING:
    from atropos_tmux.ssh import Remote

app = typer.Typer(help="Run commands in tmux: they go on after logout and keep their log and exit code.")
PLACE = "Where"

HostOption = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="USER@HOST", rich_help_panel=PLACE, help="Another machine, by ssh.", show_default=False
    ),
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        "--remote-python",
        metavar="PATH",
        envvar="ATROPOS_REMOTE_PYTHON",
        show_envvar=False,
        rich_help_panel=PLACE,
        show_default=False,
        help="Interpreter there that has atropos (or ATROPOS_REMOTE_PYTHON).  [default: that of atropos on its PATH]",
    ),
]
SshOption = Annotated[
    Path | None,
    typer.Option(
        "--ssh-config", metavar="FILE", rich_help_panel=PLACE, show_default=False, help="Instead of ~/.ssh/config."
    ),
]
SocketOption = Annotated[
    str, typer.Option("--socket", metavar="NAME", rich_help_panel=PLACE, help="The tmux server's socket (tmux -L).")
]
NameArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.", show_default=False)]


@app.command("run", context_settings={"allow_interspersed_args": False})
def run(
    ctx: typer.Context,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="Any atropos command with its options.", show_default=False),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The job's name.  [default: from the command]", show_default=False),
    ] = None,
    cwd: Annotated[
        str | None,
        typer.Option(
            "--cwd", metavar="DIR", help="Where it runs.  [default: here; with --host the home]", show_default=False
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME[=VALUE]",
            show_default=False,
            help="A variable for the job; by NAME alone its value is taken from here and shows on no command line.",
        ),
    ] = None,
    attach: Annotated[bool, typer.Option("--attach/--detach", help="Show the session, or return at once.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be started, and stop.")] = False,
    host: HostOption = None,
    remote_python: PythonOption = None,
    ssh_config: SshOption = None,
    socket: SocketOption = "atropos",
    as_json: JsonOption = False,
) -> int:
    """Start an atropos command in tmux.

    atropos tmux run --name play -- gen textworld --limit 100 --output runs/play
    """
    session = session_of(ctx)
    words = command[1:] if command[0] == "atropos" else command
    if not words or words[0].startswith("-"):
        raise UsageError("give the command to run", hint="atropos tmux run -- gen textworld --limit 10")
    given = _variables(env or [])
    if attach and as_json:
        raise UsageError("--attach and --json exclude each other", hint="drop one of them")
    if attach and not dry_run:
        _require_terminal()
    remote = _remote(host, remote_python, ssh_config)
    if remote is None:
        check_command(session, words)
        job = _job(socket, name, words, cwd, given)
        return _start(session, socket, job, attach=attach, dry_run=dry_run, as_json=as_json)
    if name is None and attach:
        name = f"{_default_name(words)}-{datetime.now():%H%M%S}"
    options = [*(["--name", name] if name else []), *(["--json"] if as_json else [])]
    options += [*(["--dry-run"] if dry_run else []), *(word for key in given for word in ("--env", key))]
    code = remote.run(["tmux", "run", "--socket", socket, *options, "--", *words], cwd=cwd, env=given)
    if code == ExitCode.OK and attach and not dry_run and name:
        _attach_there(remote, socket, name)
    return exit_code(code)


@app.command("status")
def status(
    ctx: typer.Context,
    job: NameArgument,
    host: HostOption = None,
    remote_python: PythonOption = None,
    ssh_config: SshOption = None,
    socket: SocketOption = "atropos",
    as_json: JsonOption = False,
) -> int:
    """How a job stands. The exit code is 1 when it failed."""
    remote = _remote(host, remote_python, ssh_config)
    if remote is not None:
        return _there(remote, "status", job, socket=socket, as_json=as_json)
    out, launcher = session_of(ctx).out, _launcher(socket)
    found, folder = launcher.status(job), launcher.folder(job)
    shown = {**found.model_dump(mode="json"), "folder": str(folder), "log": str(folder / "log.txt")}
    if as_json:
        out.json(shown)
    else:
        out.details({key: str(value) for key, value in shown.items() if value is not None})
        if found.state == "failed" and (folder / "log.txt").exists():
            for line in list(launcher.logs(job))[-5:]:
                out.note(f"  | {line}")
        end(out, f"{job} {found.state}", _following(job, found.state, socket))
    return ExitCode.FAILED if found.state == "failed" else ExitCode.OK


@app.command("logs")
def logs(
    ctx: typer.Context,
    job: NameArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    host: HostOption = None,
    remote_python: PythonOption = None,
    ssh_config: SshOption = None,
    socket: SocketOption = "atropos",
) -> int:
    """Print what a job has written, from the first byte."""
    remote = _remote(host, remote_python, ssh_config)
    if remote is not None:
        return _there(remote, "logs", *(["--follow"] if follow else []), job, socket=socket)
    out = session_of(ctx).out
    for line in _launcher(socket).logs(job, follow=follow):
        out.data(line)
        if follow:
            data_stream().flush()
    return ExitCode.OK


@app.command("stop")
def stop(
    ctx: typer.Context,
    job: NameArgument,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds it gets to save its work before it is killed.")
    ] = 60.0,
    host: HostOption = None,
    remote_python: PythonOption = None,
    ssh_config: SshOption = None,
    socket: SocketOption = "atropos",
    as_json: JsonOption = False,
) -> int:
    """Stop a job and everything it started. Its log and exit code stay."""
    remote = _remote(host, remote_python, ssh_config)
    if remote is not None:
        return _there(remote, "stop", "--grace", str(grace), job, socket=socket, as_json=as_json)
    launcher = _launcher(socket, grace)
    launcher.cancel(job)
    found, out = launcher.status(job), session_of(ctx).out
    if as_json:
        out.json(found.model_dump(mode="json"))
    else:
        code = "" if found.exit_code is None else f", exit code {found.exit_code}"
        end(out, f"{found.id}: {found.state}{code}", shell("tmux", "logs", found.id, *_at(socket)))
    return ExitCode.OK


@app.command("attach")
def attach(
    ctx: typer.Context,
    job: NameArgument,
    host: HostOption = None,
    ssh_config: SshOption = None,
    socket: SocketOption = "atropos",
) -> None:
    """Show a job's session on this terminal; Ctrl-b d leaves it running."""
    _require_terminal()
    remote = _remote(host, None, ssh_config)
    if remote is not None:
        _attach_there(remote, socket, job)
    launcher = _launcher(socket)
    launcher.folder(job)
    _attach_here(launcher, job)


@app.command("list")
def list_jobs(
    ctx: typer.Context,
    forget: Annotated[
        bool, typer.Option("--forget", help="Drop ended jobs from the list, and their sessions.")
    ] = False,
    host: HostOption = None,
    remote_python: PythonOption = None,
    ssh_config: SshOption = None,
    socket: SocketOption = "atropos",
    as_json: JsonOption = False,
) -> int:
    """List jobs, the oldest first."""
    remote = _remote(host, remote_python, ssh_config)
    if remote is not None:
        return _there(remote, "list", *(["--forget"] if forget else []), socket=socket, as_json=as_json)
    out, launcher = session_of(ctx).out, _launcher(socket)
    rows = [(launcher.status(name), folder) for name, folder in launcher.jobs()]
    if forget:
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
    following = ("status", rows[-1][0].id, *_at(socket)) if rows else ("run", "--help")
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


def _variables(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, value = variable(text)
        put_once(found, name, os.environ[name] if value is None else value, "--env")
    return found


def _remote(host: str | None, python: str | None, config: Path | None) -> Remote | None:
    from atropos_tmux.ssh import Remote

    return None if host is None else Remote(host, python, config)


def _there(remote: Remote, *words: str, socket: str, as_json: bool = False) -> int:
    verb, *rest = words
    return exit_code(remote.run(["tmux", verb, "--socket", socket, *(["--json"] if as_json else []), *rest]))


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
