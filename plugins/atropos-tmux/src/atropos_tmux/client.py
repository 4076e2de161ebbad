"""tmux by subprocess: a server of our own (`tmux -L NAME -f /dev/null`), exact session names, little environment."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from atropos_cli.sdk.launchers import LaunchError

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TMUX_TMPDIR", "TERM")
_LONGEST = 60
_LEFT_OUT = re.compile(
    r"(?:SLURM_|SBATCH_|SRUN_|SALLOC_|PMI_?|PMIX_|OMPI_).*|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_(?:ADDR|PORT)"
    r"|TMUX|TMUX_PANE|STY|COLUMNS|LINES"
)
_SLURM_KEPT = re.compile(
    r"SLURM_(?:CONF|CONF_SERVER|CLUSTERS|JWT)"
    r"|SBATCH_(?:ACCOUNT|CLUSTERS|CONSTRAINT|PARTITION|QOS|RESERVATION|TIMELIMIT|WCKEY)"
)
"""How to reach a cluster, and what a site or a user sets for all jobs of an account."""


def session_name(name: str) -> str:
    """A name that tmux takes as it is: letters, digits, - and _. A changed one gets a hash of the true name."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
    if cleaned and cleaned == name and len(name) <= _LONGEST:
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{cleaned[: _LONGEST - 7] or 'job'}-{mark}"


def job_environment(source: Mapping[str, str]) -> dict[str, str]:
    """The variables a job inherits: all but those that tie it to a SLURM step, a rank or another terminal."""
    return {
        name: value for name, value in source.items() if _SLURM_KEPT.fullmatch(name) or not _LEFT_OUT.fullmatch(name)
    }


class Tmux:
    """One tmux server, by the name of its socket."""

    def __init__(self, socket: str) -> None:
        self.socket = socket

    @property
    def command(self) -> list[str]:
        """How the server is spoken to. Raises LaunchError when there is no tmux."""
        path = shutil.which("tmux")
        if path is None:
            raise LaunchError("tmux is not installed here", hint="install it, for example: apt-get install tmux")
        return [path, "-L", self.socket, "-f", os.devnull]

    def environment(self) -> dict[str, str]:
        """What the server gets: it lives on after us and hands its environment to every session, so it gets little."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {"TERM": "dumb", **kept}

    def call(self, *args: str) -> subprocess.CompletedProcess[str]:
        """One tmux command. Arguments must not end in ';'."""
        return subprocess.run(  # noqa: S603 (no shell)
            [*self.command, *args],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    def start(self, session: str, *argv: str) -> None:
        """Start argv in a new session of its own, with / as its folder. Raises LaunchError with tmux's words."""
        # The server must not end before its first session is there, and must end with its last.
        options = (("remain-on-exit", "on"), ("history-limit", "50000"), ("exit-empty", "off"))
        words = ["start-server", ";"]
        for name, value in options:
            words += ["set-option", "-g", name, value, ";"]
        words += ["new-session", "-d", "-s", session, "-x", "160", "-y", "50", "-c", "/", "--", *argv, ";"]
        words += ["set-option", "-g", "exit-empty", "on"]
        done = self.call(*words)
        if done.returncode and "exited" in done.stderr:
            done = self.call(*words)  # we met a server that was about to end
        if done.returncode:
            raise LaunchError(f"tmux cannot start session {session!r}: {_words(done)}", hint=_hint(done.stderr))

    def has(self, session: str) -> bool:
        return self.call("has-session", "-t", f"={session}").returncode == 0

    def pane(self, session: str) -> tuple[int, bool] | None:
        """(pid of the pane's process, has it ended); None without such a session."""
        done = self.call("list-panes", "-t", f"={session}:", "-F", "#{pane_pid}\t#{pane_dead}")
        if done.returncode or not done.stdout.strip():
            return None
        pid, dead = done.stdout.splitlines()[0].split("\t")
        return int(pid), dead == "1"

    def screen(self, session: str) -> str:
        """What the pane shows."""
        return self.call("capture-pane", "-p", "-t", f"={session}:").stdout.strip()

    def kill(self, session: str) -> None:
        """End the session; it may be gone already. The server ends with its last one."""
        self.call("kill-session", "-t", f"={session}")

    def attach_command(self, session: str, *, read_only: bool = False) -> list[str]:
        """argv that shows the session on a terminal."""
        return [*self.command, "attach-session", *(["-r"] if read_only else []), "-t", f"={session}"]


def _words(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"


def _hint(words: str) -> str | None:
    if "too long" in words:
        return "set TMUX_TMPDIR to a short path: a socket's path may have 107 bytes"
    return None
