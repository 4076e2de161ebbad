"""Where a component runs: what the supervisor asks of a placer, and the placer of this machine.

The supervisor decides when; a placer starts one component on one node. In every case the program that is
started is jobs/node.py, the component's parent on its node.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, Protocol

from atropos_cli.domain.job import Component
from atropos_cli.errors import LaunchError
from atropos_cli.jobs.node import MARK
from atropos_cli.jobs.processes import descendants, marked, send

NODE_MODULE = "atropos_cli.jobs.node"


Cause = Literal["preempted", "time limit"]
"""Why a cluster stops a job that was not cancelled."""


class Placed(Protocol):
    """A component that was started."""

    def poll(self) -> int | None:
        """The exit code of its parent on the node (that of the component), None while it runs."""

    def stop(self) -> None:
        """Ask politely (SIGTERM to the program); returns at once."""

    def kill(self) -> None:
        """End it and everything it started, now."""


class Placer(Protocol):
    """Starts components.

    nodes: names of the nodes, in the order that Component.node counts. job_id: of the cluster. restarts: how
    often the cluster has started this job again. stop_within: seconds from a SIGTERM of the cluster to its
    SIGKILL, None where nobody kills.
    """

    nodes: tuple[str, ...]
    job_id: str | None
    restarts: int
    stop_within: float | None

    def start(self, component: Component, folder: Path, log: Path) -> Placed:
        """Start a component of the plan in `folder`; what it prints is appended to `log`.

        Raises LaunchError when it cannot even be tried.
        """

    def cause(self) -> Cause | None:
        """Why the cluster stops this job now; None: it does not, or does not say."""

    def requeue(self) -> None:
        """Queue this job again. Raises LaunchError where that is not possible."""


class LocalProcess:
    """A component on this machine, in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self._process = process
        self._mark = mark

    def poll(self) -> int | None:
        code = self._process.poll()
        if code is not None and code < 0:
            # Its parent was killed and can end nothing any more: what it left is found by its mark.
            send(marked(MARK, self._mark), signal.SIGKILL)
            return 128 - code
        return code

    def stop(self) -> None:
        if self._process.poll() is None:
            send([self._process.pid], signal.SIGURG)

    def kill(self) -> None:
        deadline = time.monotonic() + 5
        while self._process.poll() is None and time.monotonic() < deadline:
            # The parent ends when its program has; until then it collects what becomes an orphan.
            send(descendants(self._process.pid), signal.SIGKILL)
            time.sleep(0.05)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        send(marked(MARK, self._mark), signal.SIGKILL)


class LocalPlacer:
    """All components on this machine, whatever node they name."""

    job_id: str | None = None
    restarts = 0
    stop_within: float | None = None

    def __init__(self, nodes: int = 1) -> None:
        self.nodes = ("localhost",) * nodes

    def start(self, component: Component, folder: Path, log: Path) -> LocalProcess:
        command = [sys.executable, "-P", "-m", NODE_MODULE, str(folder), component.name, "--forward"]
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(os.environ),
            )
        return LocalProcess(process, f"{folder}/{component.name}")

    def cause(self) -> Cause | None:
        return None

    def requeue(self) -> None:
        raise LaunchError("a local job cannot be queued again")
