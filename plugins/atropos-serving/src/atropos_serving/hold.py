"""Run a planned server until it is stopped: the supervisor in this process, the record kept up to date.

python -m atropos_cli.serving.hold FOLDER        what --detach starts, in a session of its own
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from atropos_cli.sdk.jobs import LocalPlacer, read_job, read_record, run_job
from atropos_cli.sdk.launchers import JobPlan, LaunchError
from atropos_cli.sdk.serving import (
    TINKER,
    ServerRecord,
    addresses,
    all_ready,
    base_url,
    held,
    read_server,
    write_record,
)
from atropos_serving.probe import probe, tinker_models

_EVERY = 0.3
STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP)


def serve(folder: Path, say: Callable[[str], None], on_ready: Callable[[ServerRecord], None] | None = None) -> int:
    """Run the servers of the folder's job until a signal or a failure; returns the supervisor's code.

    on_ready is called once, in another thread, when all of them work and were asked what they can.
    """
    plan = read_job(folder / "job.json")
    with held(folder):
        record = read_server(folder)
        if record is None:
            raise LaunchError(f"{folder} has no server.json")
        record = record.replace(
            pid=os.getpid(), host=socket.gethostname(), state="starting", started=time.time(), code=None, reason=None
        )
        write_record(folder, record)
        watcher = _Watcher(plan, folder, record, on_ready)
        watcher.start()
        code = 0
        try:
            code = run_job(plan, folder, LocalPlacer(), say)
        finally:
            watcher.finish()
            end = read_record(folder / "exit.json") or {}
            state = "stopped" if code in STOPPED or code == 0 else "failed"
            changed = {"state": state, "code": code, "reason": end.get("reason")}
            write_record(folder, watcher.record.replace(**changed, ready=watcher.ready_at))
    return code


class _Watcher(threading.Thread):
    """Notes when all servers are ready, and their capabilities."""

    def __init__(
        self, plan: JobPlan, folder: Path, record: ServerRecord, on_ready: Callable[[ServerRecord], None] | None
    ) -> None:
        super().__init__(name="server-watcher", daemon=True)
        self.record = record
        self.ready_at: float | None = None
        self._plan = plan
        self._folder = folder
        self._on_ready = on_ready
        self._over = threading.Event()
        self._lock = threading.Lock()
        events = folder / "events.jsonl"
        self._skip = events.stat().st_size if events.exists() else 0

    def run(self) -> None:
        while not all_ready(self._plan, self._folder, skip=self._skip):
            if self._over.wait(_EVERY):
                return
        urls = [base_url(host, port, self.record.engine) for host, port in addresses(self._plan, self._folder)]
        found = capabilities(self._plan, self._folder, self.record)
        with self._lock:
            if self._over.is_set():
                return
            self.ready_at = time.time()
            self.record = self.record.replace(state="ready", urls=tuple(urls), capabilities=found, ready=self.ready_at)
            write_record(self._folder, self.record)
        if self._on_ready is not None:
            self._on_ready(self.record)

    def finish(self) -> None:
        """From now on the record is somebody else's."""
        with self._lock:
            self._over.set()


def capabilities(plan: JobPlan, folder: Path, record: ServerRecord) -> dict[str, Any]:
    """What the first of the servers gives; they are all alike."""
    places = addresses(plan, folder)
    if not places:
        return {}
    head = next(item for item in plan.services if item.health is not None)
    if record.engine == TINKER:
        return tinker_models(*places[0])
    engine: Any = record.engine
    return probe(engine, *places[0], _after(head.argv, "--tool-call-parser"))


def _after(argv: tuple[str, ...], name: str) -> str | None:
    """The value of the last option of that name."""
    found = None
    for word, value in pairwise(argv):
        if word == name:
            found = value
        elif word.startswith(name + "="):
            found = word.partition("=")[2]
    return found


def main() -> int:
    """What --detach starts. Prints go to launch.log."""
    folder = Path(sys.argv[1])

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201 - this is a log

    try:
        return serve(folder, say)
    except LaunchError as error:
        say(f"error: {error.message}")
        return int(error.exit_code)


if __name__ == "__main__":
    sys.exit(main())
