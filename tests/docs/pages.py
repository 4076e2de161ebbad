"""Run what a page of the docs tells its reader to do, in the order it stands there.

A ```console block is run: lines that begin with `$ ` are commands (a line that ends with a backslash goes on), the
others are the output that is expected, where `...` stands for anything. Comments before a block, which
readers do not see, steer it:

    <!-- file: player.py -->        the block is the content of this file; replaces it
    <!-- exit: 3 -->                the block's last command ends with this code
    <!-- skip: needs a GPU -->      the block is not run, for this reason
    <!-- mock-server: URL vllm -->  anywhere: a mock model server of this kind answers in the place of URL
    <!-- mock-reply: URL TEXT -->   anywhere: what that server answers

The commands of a page share one folder, one environment and one virtual environment of their own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r"^(?P<fence>```+)(?P<language>[\w{}-]*)\n(?P<body>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!-- *(file|exit|skip|mock-server|mock-reply): *(.*?) *-->")
TIMEOUT = 600.0


@dataclass
class Step:
    """One block of a page that something is done with."""

    line: int
    kind: str
    body: str
    marks: dict[str, str] = field(default_factory=dict)

    def commands(self) -> Iterator[tuple[str, str]]:
        """(command, expected output) of a console block."""
        command: str | None = None
        output: list[str] = []
        for line in self.body.splitlines():
            if command is not None and command.endswith("\\") and not output:
                command = f"{command}\n{line.removeprefix('> ')}"
            elif line.startswith("$ "):
                if command is not None:
                    yield command, "\n".join(output)
                command, output = line[2:], []
            else:
                output.append(line)
        if command is not None:
            yield command, "\n".join(output)


def steps_of(text: str) -> Iterator[Step]:
    """The steps of a page."""
    for block in BLOCK.finditer(text):
        before = text[: block.start()].rstrip("\n").rsplit("\n\n", 1)[-1]
        marks = {match[1]: match[2] for match in COMMENT.finditer(before.splitlines()[-1] if before else "")}
        kind = "file" if "file" in marks else block["language"]
        if kind in ("file", "console"):
            yield Step(text.count("\n", 0, block.start()) + 1, kind, block["body"], marks)


def mock_servers(text: str) -> dict[str, str]:
    """URL -> flavor of the servers a page wants."""
    wanted = (value.split() for name, value in COMMENT.findall(text) if name == "mock-server")
    return dict(wanted)


def mock_replies(text: str) -> dict[str, str]:
    """URL -> what the server of a page answers, where the page says it."""
    wanted = (value.partition(" ") for name, value in COMMENT.findall(text) if name == "mock-reply")
    return {url: reply for url, _, reply in wanted}


class Reader:
    """Somebody who follows a page, in a folder of their own."""

    def __init__(self, folder: Path, replacements: dict[str, str]) -> None:
        self.folder = folder
        self.replacements = replacements
        self.work = folder / "work"
        self.work.mkdir()
        self._cwd = folder / "cwd"
        self._cwd.write_text(str(self.work))
        self._env = folder / "env.sh"
        self._env.write_text("")
        self._bin = make_environment(folder / "venv")
        self._tmux = tempfile.TemporaryDirectory(prefix="tx")  # short: a socket's path may have 107 bytes

    def follow(self, page: Path) -> int:
        """Do every step; the number of commands run. Fails with page, line, command and what came out."""
        count = 0
        for step in steps_of(page.read_text(encoding="utf-8")):
            if "skip" in step.marks:
                continue
            if step.kind == "file":
                path = Path(self._cwd.read_text().strip()) / step.marks["file"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(self._replaced(step.body))
                continue
            commands = list(step.commands())
            for number, (command, expected) in enumerate(commands):
                wanted = int(step.marks.get("exit", 0)) if number == len(commands) - 1 else 0
                code, output = self.run(self._replaced(command))
                where = f"{page.name}:{step.line}: {command}\n{output}"
                assert code == wanted, f"exit code {code} instead of {wanted}\n{where}"
                assert matches(expected, output), f"expected\n{expected}\n{where}"
                count += 1
        return count

    def run(self, command: str) -> tuple[int, str]:
        """(exit code, stdout and stderr) of a command in the page's shell."""
        script = (
            f'cd "$(cat {shlex.quote(str(self._cwd))})" && . {shlex.quote(str(self._env))}\n{command}\n'
            f"code=$?; pwd > {shlex.quote(str(self._cwd))}; export -p > {shlex.quote(str(self._env))}; exit $code"
        )
        path = os.pathsep.join([str(self._bin), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            env={
                **os.environ,
                "PATH": path,
                "COLUMNS": "100",
                "TMUX_TMPDIR": self._tmux.name,
                "PIP_NO_INDEX": "1",
                "PIP_NO_BUILD_ISOLATION": "0",
            },
        )
        return done.returncode, done.stdout

    def _replaced(self, text: str) -> str:
        for old, new in self.replacements.items():
            text = text.replace(old, new)
        return text


def make_environment(venv: Path) -> Path:
    """A virtual environment that sees what is installed here; what a page installs stays in it. Its bin folder."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (purelib,) = venv.glob("lib/python*/site-packages")
    here = sysconfig.get_path("purelib")
    (purelib / "outer.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    scripts = {
        "atropos": "import sys; from atropos_cli.cli.app import main; sys.argv[0] = 'atropos'; main()",
        "pytest": "import sys, pytest; sys.exit(pytest.main())",
    }
    for name, code in scripts.items():
        (venv / "bin" / name).write_text(f"#!{venv}/bin/python\n{code}\n")
    (venv / "bin" / "pip").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m pip --disable-pip-version-check -q --python {venv}/bin/python "$@"\n'
    )
    for name in (*scripts, "pip"):
        (venv / "bin" / name).chmod(0o755)
    return venv / "bin"


def matches(expected: str, output: str) -> bool:
    """Is the output as expected? `...` stands for any text within a line, alone on a line for any number of lines."""
    if not expected.strip("\n"):
        return True
    wanted = [line.rstrip() for line in expected.strip("\n").splitlines()]
    found = [line.rstrip() for line in output.strip("\n").splitlines()]
    parts = ["(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in wanted]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in found)) is not None
