"""What a Ray worker does for one shard: `atropos run FOLDER` as a child process, with its output in a file.

A child, because a run wants signals, an event loop and a lock of its own; it dies with the worker, so that the
shard can be begun again elsewhere at once. Ray retries a shard that was killed, and `atropos run` goes on
with the groups that are there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 60.0
LOG = "output.log"


class ShardLost(Exception):
    """The shard's process was killed: worth another try."""


class NotShared(Exception):
    """The run's folder, or the working directory, cannot be seen where the task runs."""


def carry_out(folder: str, cwd: str, env: Mapping[str, str]) -> int:
    """Carry out the plan in the shard's folder; its exit code. Raises ShardLost and NotShared."""
    place = Path(folder)
    if not (place / "plan.json").is_file():
        raise NotShared(f"{folder} is not there on node {os.uname().nodename}")
    if not Path(cwd).is_dir():
        raise NotShared(f"the working directory {cwd} is not there on node {os.uname().nodename}")
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    with (place / LOG).open("ab", buffering=0) as log:
        child = subprocess.Popen(  # noqa: S603 (no shell)
            [sys.executable, "-m", "atropos_cli", "run", folder],
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        try:
            code = child.wait()
        except BaseException:  # the task is cancelled: let the run save what it has
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.terminate()
                child.wait(_STOP_SECONDS)
            child.kill()
            child.wait()
            raise
    if code < 0:
        raise ShardLost(f"{folder} was ended by {signal.Signals(-code).name}")
    return code
