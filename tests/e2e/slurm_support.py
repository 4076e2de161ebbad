"""What the SLURM tests share: the cluster, a folder to work in, jobs made of components."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_slurm.launcher import SlurmLauncher

from atropos_cli.domain.job import Component, JobPlan, Resources, Warmup
from atropos_cli.jobs.folder import write_job
from atropos_cli.jobs.store import remember
from atropos_cli.ports.launcher import JobSpec

from . import slurm_cluster
from .slurm_cluster import Cluster

slurm = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm_cluster.missing() is not None, reason=f"no SLURM: {slurm_cluster.missing()}"),
]

PROGRAMS = str(Path(__file__).with_name("slurm_programs.py"))


ENV = """
from atropos_cli.sdk import Environment, Task, reward, user

@reward
def right(task, rollout):
    return float(rollout.messages[-1].content == task.answer)

class Sums(Environment):
    name = "sums"
    rewards = (right,)

    def tasks(self, split):
        return [Task(id=str(n), prompt=(user(f"{n}+1?"),), answer=str(n + 1)) for n in range(24)]
"""


PLAYER = """
import re

def reply(messages, request):
    return str(int(re.search(r"\\d+", messages[-1].content)[0]) + 1)
"""


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of this file."""
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(name="place")
def place_fixture(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an environment and a player; after the test no process of it may be left."""
    (tmp_path / "sums.py").write_text(ENV)
    (tmp_path / "player.py").write_text(PLAYER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield tmp_path
    deadline = time.monotonic() + 10
    while (left := processes_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def processes_of(folder: Path) -> list[str]:
    """Command lines of living processes that name the folder, or were started as components of a job in it."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            command = (path / "cmdline").read_bytes()
            marked = b"_ATROPOS_COMPONENT=" + str(folder).encode() in (path / "environ").read_bytes()
        except OSError:
            continue
        if command and (marked or str(folder).encode() in command):
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


GEN = ("gen", "./sums.py:Sums", "--backend", "scripted", "--backend.function", "./player.py:reply", "--group-size", "2")


def service(name: str, node: int, *, warm: float = 0, die: float = 0, code: int = 0, gpu: int = 0) -> Component:
    argv = (sys.executable, "-u", PROGRAMS, "server", "{port}", str(warm), str(die), str(code))
    warmup = Warmup(path="/warm", json_body={"x": 1})
    return Component(
        name=name, role="service", argv=argv, node=node, gpus=(gpu,), ports=("http",), health="/health", warmup=warmup
    )


def main(*argv: str) -> Component:
    return Component(name="main", role="main", argv=argv)


def client(*names: str) -> Component:
    return main(sys.executable, "-u", PROGRAMS, "client", *(f"http://{{endpoint:{name}}}/health" for name in names))


def start(folder: Path, *components: Component, nodes: int = 2, **settings: Any) -> str:
    """Submit a job made of components; returns its id."""
    resources = Resources(nodes=nodes, gpus_per_node=2, cpus_per_node=2)
    plan = JobPlan(atropos_version="0", name="test", components=components, resources=resources, grace=5, **settings)
    write_job(plan, folder)
    spec = JobSpec(name="test", run=str(folder), cwd=str(folder), resources=resources.model_dump(mode="json"))
    launcher = SlurmLauncher(SlurmLauncher.Config())
    job_id = launcher.submit(spec)
    remember(folder, job_id, spec, launcher)
    return job_id


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "exit.json").read_text())
    return found


def log(folder: Path, name: str) -> str:
    return (folder / "logs" / "latest" / f"{name}.log").read_text()


def until(condition: Callable[[], Any], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def groups(run: Path) -> dict[str, Any]:
    """The groups of a run by id, without what differs from run to run."""
    found = {}
    for line in (run / "groups.jsonl").read_text().splitlines():
        group = json.loads(line)
        found[group["group_id"]] = [
            ([m["content"] for m in item["messages"]], item["reward"]) for item in group["rollouts"]
        ]
    return found
