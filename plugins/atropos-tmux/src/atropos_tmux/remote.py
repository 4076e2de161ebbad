"""The far side of `--host`: carry out one request that came over ssh.

A request is JSON on standard input: {"args": [...], "cwd": ..., "env": {...}}, or {"code": ...}, see bring.py. When
the connection ends, so does this program; jobs that it started live in tmux and go on.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path


def serve() -> int:
    """Read the request and become the program that it asks for; returns an exit code when that cannot be."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    request = json.loads(sys.stdin.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if "code" in request:
        from atropos_tmux.bring import receive

        receive(request["code"])
        return 0
    os.environ.update(request["env"])
    from atropos_cli.sdk.commands import ExitCode, Output

    if request["cwd"] is not None:
        try:
            os.chdir(Path(request["cwd"]).expanduser())
        except (OSError, RuntimeError) as error:
            Output().error(f"the working directory {request['cwd']} cannot be used: {error}", "--cwd DIR")
            return ExitCode.LAUNCH
    args = list(request["args"])
    if args[0] == "tmux":
        args.insert(2, "--host=")  # this is the host, whatever a file here says
    sys.argv = ["atropos", *args]
    runpy.run_module("atropos_cli", run_name="__main__")
    return ExitCode.OK


def _end_with_parent(parent: int) -> None:
    """Without a terminal nobody tells us that the connection is gone, but sshd's process is our parent."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(serve())
