"""Lines of bash that run before a job's programs and leave them their variables: module load, source, export, pip.

    set_up(lines, ...) -> the variables that they leave        in the supervisor
    python -m atropos_cli.jobs.setup LINES.json PROGRAM...      in place of a program, which is started behind them

A line that fails, or that ends the shell, is named with its exit code, and nothing is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from atropos_cli.domain.base import clean_text
from atropos_cli.domain.job import JobPlan
from atropos_cli.domain.placeholders import tokens
from atropos_cli.errors import ExitCode, LaunchError, UsageError
from atropos_cli.jobs.folder import JobFolder
from atropos_cli.jobs.node import MARK
from atropos_cli.jobs.processes import die_with_parent, marked, send
from atropos_cli.redaction import looks_secret

SETUP_ENDED = "the set-up ended with code"
"""How the message about a line that failed begins."""
_TICK = 0.1
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "_atropos"})
"""Variables of the shell itself."""


class SetupFailed(LaunchError):
    """A line failed. code: its exit code, 7 where the shell ended with 0 before the last line."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def check_setup(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines for a plan, where everybody can read them. Raises UsageError for a secret, or a NUL."""
    for line in lines:
        if "\0" in line or clean_text(line) != line:
            raise UsageError("--setup: a line holds a NUL character, or bytes that are not UTF-8")
        for word in line.replace("=", " ").replace("'", " ").replace('"', " ").split():
            if looks_secret(word):
                raise UsageError(
                    "--setup: a line holds what looks like a secret, and would be written into the job's plan",
                    hint="export the variable in your shell and give --env NAME",
                )
    return tuple(line for line in lines if line.strip())


def set_up(
    lines: Sequence[str],
    environ: Mapping[str, str],
    cwd: str | None,
    log: IO[bytes] | None = None,
    *,
    stopped: Callable[[], bool] = lambda: False,
    mark: str = "",
) -> dict[str, str]:
    """Run the lines in one shell; the variables that they leave. log: takes their output (None: our own output).

    mark: the value of MARK for what the lines start, by which it is found when it outlives them.
    A line fails with the code of its last command, of a pipe with that of any part of it (`set -e -o pipefail`).

    Raises SetupFailed; when `stopped` becomes true meanwhile, with code 143, and the shell is ended.
    """
    shell = next((path for path in _SHELLS if Path(path).exists()), None)
    if shell is None:
        raise SetupFailed("set-up lines need bash, which is not on this machine", int(ExitCode.LAUNCH))
    with tempfile.TemporaryFile() as marks, tempfile.TemporaryFile() as left:
        numbers = marks.fileno(), left.fileno()
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own lines
                [shell, "--noprofile", "--norc", "-c", _script(lines, *numbers)],
                env={**environ, MARK: mark} if mark else dict(environ),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=numbers,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            raise SetupFailed(f"the set-up cannot start in {cwd}: {error.strerror}", int(ExitCode.LAUNCH)) from error
        code = _wait(process, stopped)
        for file in (marks, left):
            file.seek(0)
        done, text = marks.read().split(), left.read()
    if code == 0 and text.endswith(b"\0"):
        pairs = (os.fsdecode(item).partition("=") for item in text.split(b"\0") if item)
        own = {*_OWN, MARK} if mark else _OWN
        return {name: value for name, _, value in pairs if name not in own}
    if stopped():
        raise SetupFailed("stopped during the set-up", 128 + signal.SIGTERM)
    number = int(done[-1]) if done else 0
    code = 128 - code if code < 0 else code
    line = lines[number] if number < len(lines) else lines[-1]
    raise SetupFailed(f"{SETUP_ENDED} {code}, at: {line}", code or int(ExitCode.LAUNCH))


def behind_setup(lines: Path, argv: Sequence[str]) -> list[str]:
    """argv of a program that runs the lines of a JSON file, then becomes the given one."""
    return [sys.executable, "-P", "-m", "atropos_cli.jobs.setup", str(lines), *argv]


def adopt_setup(plan: JobPlan, folder: JobFolder, say: Callable[[str], None], *, stopped: Callable[[], bool]) -> None:
    """Run the lines of a job; their variables become this process's, and so those of all components."""
    if not plan.setup:
        return
    log = folder.log("setup")
    folder.event("setup", lines=len(plan.setup))
    say(f"set-up, log {log}")
    literal = {name: text for name, text in plan.env.items() if not tokens(text)}
    with log.open("ab") as file:
        environ = {**os.environ, **literal}
        left = set_up(plan.setup, environ, plan.cwd, file, stopped=stopped, mark=_mark(folder))
    for name in os.environ.keys() - left.keys():
        del os.environ[name]
    os.environ.update(left)


def end_setup(plan: JobPlan, folder: JobFolder) -> None:
    """End what the lines left running in the background."""
    if plan.setup:
        send(marked(MARK, _mark(folder)), signal.SIGKILL)


def _mark(folder: JobFolder) -> str:
    return f"{folder.folder}/#setup"


def _script(lines: Sequence[str], marks: int, left: int) -> str:
    """Each line behind a mark with its number: the last mark says which one failed.

    A file that a line sources may end with `set +e`, as scripts of environments do: it holds for that line alone.
    """
    parts = ["set -o pipefail"]
    for number, line in enumerate(lines):
        parts += [f"builtin echo {number} >&{marks}", "set -e", f"builtin eval {shlex.quote(line)}"]
        parts += ['_atropos=$?; [ "$_atropos" = 0 ] || builtin exit "$_atropos"']
    return "\n".join([*parts, f"/usr/bin/env -0 >&{left}", ""])


def _wait(process: subprocess.Popen[bytes], stopped: Callable[[], bool]) -> int:
    told = 0.0
    try:
        while (code := process.poll()) is None:
            if stopped():
                told = told or time.monotonic()
                number = signal.SIGTERM if time.monotonic() - told < 5 else signal.SIGKILL
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            time.sleep(_TICK / 4)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise
    return code


def main(argv: Sequence[str]) -> int:
    """Run the lines of a file, then become the program."""
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda got, frame: signals.append(got))
    lines = [str(line) for line in json.loads(Path(argv[0]).read_text(encoding="utf-8"))]
    try:
        env = set_up(lines, os.environ, None, stopped=lambda: bool(signals))
    except SetupFailed as error:
        print(f"atropos: {error.message}", file=sys.stderr, flush=True)  # noqa: T201 (the job's log)
        return error.code
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.execve(argv[1], list(argv[1:]), env)  # noqa: S606


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
