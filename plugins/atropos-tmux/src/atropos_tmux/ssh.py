"""atropos on another machine over ssh: one request in, its output and exit code back.

What is to be done travels as JSON inside a script on ssh's standard input, so nothing of it stands on a command
line, here or there, and no shell reads it. ssh never asks anything (BatchMode).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from atropos_cli.sdk import ConfigError, UsageError
from atropos_cli.sdk.code import Found
from atropos_cli.sdk.commands import data_fd, data_stream, give_back_stdout
from atropos_cli.sdk.launchers import LaunchError
from atropos_tmux import bring

NO_PYTHON, NO_ATROPOS, SSH_FAILED = 94, 95, 255
_END = "ATROPOS_REQUEST"
_ANSWER = b"\x02atropos answers\x03\n"
"""Printed before atropos itself is started there: text before it is the login shell's (a greeting of .bashrc)."""
_MOST_BEFORE = 1 << 20

# The interpreter: the one given, else the one of the `atropos` on PATH, else python3.
_SCRIPT = """\
py={python}
if [ -z "$py" ]; then
  if found=$(command -v atropos) && IFS= read -r line <"$found"; then
    case $line in '#!'*' '*) ;; '#!'*python*) py=${{line#??}} ;; esac
  fi
  [ -n "$py" ] || py=python3
fi
case $py in '~/'*) py=$HOME/${{py#??}} ;; esac
command -v "$py" >/dev/null 2>&1 || {{ printf '%s\\n' "$py" >&2; exit {no_python}; }}
"$py" -c 'import importlib.util as u, sys; sys.exit(None in map(u.find_spec, ["atropos_cli", "atropos_tmux"]))' || {{ printf '%s\\n' "$py" >&2; exit {no_atropos}; }}
printf '\\002atropos answers\\003\\n'
{keep}exec "$py" -m atropos_tmux.remote <<'{end}'
{request}
{end}
"""  # noqa: E501 (a line of a shell script)


@dataclass(frozen=True, slots=True)
class Remote:
    """A machine to run on. host as ssh takes it; python: the interpreter there that has atropos."""

    host: str
    python: str | None = None
    config: Path | None = None

    def __post_init__(self) -> None:
        if not self.host or self.host.startswith("-") or any(not char.isprintable() for char in self.host):
            raise UsageError(f"{self.host!r} is not a host", hint="give user@host, or a name of ~/.ssh/config")
        if self.config is not None and not self.config.is_file():
            raise ConfigError(f"there is no ssh configuration file {self.config}")

    def ssh(self, *options: str) -> list[str]:
        """The ssh command up to the host. Raises LaunchError without ssh."""
        path = shutil.which("ssh")
        if path is None:
            raise LaunchError(
                "ssh is not installed here", hint="install it, for example: apt-get install openssh-client"
            )
        file = [] if self.config is None else ["-F", str(self.config)]
        return [path, *file, "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", *options, "--", self.host]

    def script(self, args: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> str:
        """What the far side's sh reads."""
        return self._script({"args": list(args), "cwd": cwd, "env": dict(env or {})})

    def _script(self, request: dict[str, Any], *, payload: int | None = None) -> str:
        """The request is one line of ASCII JSON, which cannot end the here-document. payload: keep stdin there."""
        return _SCRIPT.format(
            python=shlex.quote(self.python or ""),
            no_python=NO_PYTHON,
            no_atropos=NO_ATROPOS,
            end=_END,
            keep="" if payload is None else f"exec {payload}<&0\n",
            request=json.dumps(request),
        )

    def run(self, args: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> int:
        """Run an atropos command there; its stdout and stderr are ours. Returns its exit code.

        Raises LaunchError when ssh or the far side's set-up fails, or when a login shell there ends before atropos.
        """
        data_stream().flush()
        command = [*self.ssh("-T"), "exec sh -s"]
        child = subprocess.Popen(  # noqa: S603 (no shell)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        answer = _Answer(child, data_fd())
        out, child.stdout = child.stdout, None  # read by the thread alone
        try:
            _, errors = child.communicate(self.script(args, cwd=cwd, env=env).encode())
            answer.join()
        except BaseException:
            child.kill()
            raise
        finally:
            if out is not None:
                out.close()
        words = errors.decode("utf-8", "replace").strip()
        if child.returncode in (NO_PYTHON, NO_ATROPOS) or (child.returncode == SSH_FAILED and not answer.marked):
            raise self._failure(child.returncode, words)
        if not answer.marked:
            raise self._ended_early(child.returncode, answer.before, words)
        if child.returncode == SSH_FAILED:
            raise self._failure(child.returncode, words)
        if words:
            print(words, file=sys.stderr)  # noqa: T201 (the far side's messages, as they are)
        return child.returncode

    def bring(self, found: Found, place: str | None, *, dry_run: bool = False) -> dict[str, Any]:
        """Make a folder there like this one; the far side's last answer. Raises LaunchError, DataError."""
        request = bring.request(found, place, dry_run=dry_run)
        command = [*self.ssh("-T"), "exec sh -s"]
        with tempfile.TemporaryFile() as errors:
            child = subprocess.Popen(  # noqa: S603 (no shell)
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
            assert child.stdin is not None
            assert child.stdout is not None
            before, answers = b"", list[dict[str, Any]]()
            script = self._script({"code": request}, payload=bring.PAYLOAD).encode()
            # Beside the reading: a login shell there may print more than fits between us before it reads.
            writing = threading.Thread(target=_write, args=(child.stdin, script), name="ssh-request", daemon=True)
            try:
                writing.start()
                while (line := child.stdout.readline()) and not line.endswith(_ANSWER):
                    before = (before + line)[-_MOST_BEFORE:]
                if line:
                    answers = self._answers(child, found)
                writing.join()
                with contextlib.suppress(BrokenPipeError):
                    child.stdin.close()
                child.wait()
            finally:
                if child.poll() is None:
                    child.kill()
                child.stdout.close()
                child.wait()
            errors.seek(0)
            words = errors.read().decode("utf-8", "replace").strip()
        if answers and "error" in answers[-1]:
            raise LaunchError(f"{self.host}: {answers[-1]['error']}", hint=answers[-1].get("hint"))
        if answers and (dry_run or "notes" in answers[-1]):
            return {**answers[-1], "sent": len(answers[0]["need"]) if not dry_run else 0}
        if child.returncode in (NO_PYTHON, NO_ATROPOS, SSH_FAILED):
            raise self._failure(child.returncode, words)
        if not line:
            raise self._ended_early(child.returncode, before, words)
        last = words.splitlines()[-1] if words else f"exit code {child.returncode}"
        raise LaunchError(f"{self.host}: the code was not brought there: {last}", hint="the same command again")

    def _answers(self, child: subprocess.Popen[bytes], found: Found) -> list[dict[str, Any]]:
        assert child.stdin is not None
        assert child.stdout is not None
        answers: list[dict[str, Any]] = []
        for line in child.stdout:
            if not line.startswith(b"{"):
                continue
            answers.append(json.loads(line))
            if isinstance(need := answers[-1].get("need"), list):
                with contextlib.suppress(BrokenPipeError):
                    bring.send(found, need, child.stdin)
                    child.stdin.close()
        return answers

    def execute(self, command: str) -> None:
        """Become an ssh with a terminal that runs a fixed command. Does not return."""
        argv = [*self.ssh("-t"), command]
        give_back_stdout()
        os.execv(argv[0], argv)  # noqa: S606

    def _ended_early(self, code: int, before: bytes, words: str) -> LaunchError:
        lines = [line for line in (before.decode("utf-8", "replace") + "\n" + words).splitlines() if line.strip()]
        said = f"; its last words: {lines[-1].strip()[:300]}" if lines else ""
        return LaunchError(
            f"the login shell on {self.host} ended with code {code} before atropos was started{said}",
            hint=f"look for exit or exec in its .bashrc or .profile; try: ssh {self.host} echo here",
        )

    def _failure(self, code: int, words: str) -> LaunchError:
        last = words.splitlines()[-1] if words else ""
        if code == NO_PYTHON:
            return LaunchError(
                f"{self.host} has no {last}", hint="--remote-python PATH, the interpreter there that has atropos"
            )
        if code == NO_ATROPOS:
            return LaunchError(
                f"{last} on {self.host} has no atropos",
                hint="--remote-python PATH of an environment that has it, or pip install atropos-tmux there",
            )
        return LaunchError(f"ssh to {self.host} failed: {last or 'it said nothing'}", hint=_hint(words, self.host))


class _Answer(threading.Thread):
    """Passes on what the far side prints from its mark on. before: the bytes ahead of it; marked: did the mark come?"""

    def __init__(self, child: subprocess.Popen[bytes], target: int | None) -> None:
        super().__init__(name="ssh-answer", daemon=True)
        assert child.stdout is not None
        self.before = b""
        self.marked = False
        self._child = child
        self._source = os.dup(child.stdout.fileno())
        self._target = 1 if target is None else target
        self.start()

    def run(self) -> None:
        try:
            while data := os.read(self._source, 1 << 16):
                self._take(data)
        except OSError:  # whoever reads our output has stopped
            self._child.terminate()
        finally:
            os.close(self._source)

    def _take(self, data: bytes) -> None:
        if not self.marked:
            self.before += data
            place = self.before.find(_ANSWER)
            if place < 0:
                self.before = self.before[-_MOST_BEFORE:]
                return
            self.marked, data, self.before = True, self.before[place + len(_ANSWER) :], self.before[:place]
        while data:
            data = data[os.write(self._target, data) :]


def _write(target: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        target.write(data)
        target.flush()


def _hint(words: str, host: str) -> str | None:
    if "Host key verification failed" in words or "REMOTE HOST IDENTIFICATION" in words:
        return f"connect once by hand and compare its fingerprint: ssh {host}"
    if "Permission denied" in words:
        return f"ssh must work without a password: ssh-copy-id {host}, or an ssh-agent with the key"
    if "resolve hostname" in words:
        return "check the host's name, or name it in ~/.ssh/config"
    if "refused" in words or "timed out" in words:
        return "is the machine up, and sshd on that port? a port is given in ~/.ssh/config"
    return None
