"""kill -9 of the server, an environment or a trainer at any moment: every group is trained on exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from crash_roles import SIZE, ask, lines
from serve_support import REGISTRATION, Server, free_port

MOMENTS = int(os.environ.get("ATROPOS_TEST_KILLS", "9"))
SEED = int(os.environ.get("ATROPOS_TEST_SEED", "17"))
_PER_MOMENT = 60
_BATCH = 4


class Roles:
    """Server, environment and trainer; each can be killed and started again."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.port = free_port()
        self.server = Server(folder / "queue", self.port)
        self.processes = {name: self._start(name) for name in ("environment", "trainer")}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("crash_roles.py")
        words = [sys.executable, str(script), name, self.server.url, str(self.journal(name)), str(self.count)]
        return subprocess.Popen(words)

    def journal(self, name: str) -> Path:
        return self.folder / f"{name}.journal"

    def kill(self, name: str) -> None:
        if name == "server":
            self.server.kill()
            self.server = Server(self.folder / "queue", self.port)
            return
        process = self.processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.processes[name] = self._start(name)

    def running(self) -> bool:
        """Raises what a role says when it fails."""
        for name, process in self.processes.items():
            assert process.poll() in (None, 0, -signal.SIGKILL), name
        return any(process.poll() is None for process in self.processes.values())

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.server.kill()


@pytest.mark.slow
def test_no_group_is_lost_or_trained_on_twice(tmp_path: Path) -> None:
    count = MOMENTS * _PER_MOMENT // _BATCH * _BATCH
    roles = Roles(tmp_path, count)
    dice = random.Random(SEED)
    killed = {"server": 0, "environment": 0, "trainer": 0}
    try:
        ask(roles.server.url, "POST", "/register", {**REGISTRATION, "batch_size": SIZE * _BATCH})
        while sum(killed.values()) < MOMENTS and roles.running():
            time.sleep(dice.uniform(0.0, 0.4))
            name = dice.choice(list(killed))
            roles.kill(name)
            killed[name] += 1
        end = time.monotonic() + 120 + MOMENTS
        while roles.running() and time.monotonic() < end:
            time.sleep(0.1)
        status = ask(roles.server.url, "GET", "/status")
    finally:
        roles.close()
    found = [entry["groups"] for entry in map(json.loads, lines(roles.journal("trainer")))]
    trained = [group for groups in found for group in groups]
    assert sorted(trained) == list(range(count)), killed
    assert (status["queue_size"], status["leased_batches"]) == (0, 0)
    print(f"{count} groups, killed {killed}, steps {status['current_step']}")
