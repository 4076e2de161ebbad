"""Start SkyRL's Tinker server where it is installed: no checkout and no `uv` are needed.

    python skyrl_server.py -m skyrl.tinker.api OPTIONS

SkyRL's server starts its engine by `uv run`, with the options that it reads off the command line of its parent. This
process is that parent, and a `uv` of our own before the others on PATH starts the engine with the same Python. Run by
SkyRL's Python: nothing of atropos is imported. Unless -m comes first, the process runs a module of SkyRL instead.
"""

from __future__ import annotations

import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_UV = """#!/bin/sh
while [ $# -gt 0 ] && [ "$1" != "-m" ]; do shift; done
shift
exec {python} {script} "$@"
"""


def main() -> int:
    if sys.argv[1] != "-m":
        return _module(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="atropos-skyrl-") as folder:
        program = Path(folder) / "uv"
        program.write_text(_UV.format(python=shlex.quote(sys.executable), script=shlex.quote(__file__)))
        program.chmod(0o755)
        environment = {**os.environ, "PATH": os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])}
        server = subprocess.Popen([sys.executable, __file__, *sys.argv[2:]], env=environment)  # noqa: S603 - ourselves

        def pass_on(number: int, frame: Any) -> None:
            server.send_signal(number)

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, pass_on)
        code = server.wait()
    return code if code >= 0 else 128 - code


def _module(name: str) -> int:
    """Run a module of SkyRL as a program."""
    if sys.version_info < (3, 12):
        # Its models have fields of typing.TypedDict, which pydantic takes from Python 3.12 on only.
        import typing

        import typing_extensions

        typing.TypedDict = typing_extensions.TypedDict
    sys.argv = [name, *sys.argv[2:]]
    sys.path.pop(0)  # this folder, put there for the script: its modules would hide SkyRL's
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
