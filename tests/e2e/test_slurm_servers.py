"""Jobs with servers on a real SLURM of two nodes with two made-up GPUs each: every way such a job can end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from atropos_slurm.launcher import SlurmLauncher
from needed import need

from atropos_cli.domain.job import JobPlan, Resources
from atropos_cli.jobs.folder import write_job
from atropos_cli.ports.launcher import JobSpec

from .slurm_cluster import Cluster
from .slurm_support import (  # noqa: F401
    GEN,
    client,
    cluster_fixture,
    groups,
    log,
    main,
    place_fixture,
    record,
    service,
    slurm,
    start,
    until,
)

pytestmark = slurm

ASK = """
import os, sys, urllib.request as u
print([u.urlopen(url).status for url in sys.argv[1:]], os.environ["SLURMD_NODENAME"])
"""


def test_two_nodes_two_servers(place: Path, cluster: Cluster) -> None:
    argv = (
        sys.executable,
        "-c",
        ASK,
        "http://{endpoint:server0}/",
        "http://{endpoint:server1}/",
    )
    asking = main(*argv).replace(node=1)
    job = cluster.wait(start(place, service("server0", 0, warm=1), service("server1", 1, gpu=1), asking))
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), log(place, "main")
    assert log(place, "main").strip() == "[200, 200] n2"
    for number in (0, 1):
        endpoint = json.loads((place / "endpoints" / f"server{number}.json").read_text())
        assert endpoint["node"] == f"n{number + 1}"
        assert "asked /warm" in log(place, f"server{number}")
        assert "stopped politely" in log(place, f"server{number}")
        # the child in its own session was ended by the parent on the node
        assert json.loads((place / "status" / f"server{number}.json").read_text())["leftovers"] == 1
    started = [json.loads(line)["event"] for line in (place / "events.jsonl").read_text().splitlines()]
    assert started.index("ready") < len(started) - 1 - started[::-1].index("start")


def test_gpus_of_a_component(place: Path, cluster: Cluster) -> None:
    show = main("sh", "-c", 'echo "gpus $CUDA_VISIBLE_DEVICES"').replace(gpus=(1,))
    cluster.wait(start(place, show, nodes=1))
    assert log(place, "main").strip() == "gpus 1"


def test_the_tasks_of_an_array_do_not_touch_each_other(place: Path, cluster: Cluster) -> None:
    """The last task's SLURM_JOB_ID is that of the whole array: stopping its server must stop no other one."""
    later = main("sh", "-c", "sleep $((6 - 5 * SLURM_ARRAY_TASK_ID))")
    resources = Resources(gpus_per_node=1, cpus_per_node=1, array=2)
    components = (service("server0", 0), later)
    plan = JobPlan(atropos_version="0", name="test", components=components, resources=resources, grace=5)
    write_job(plan, place)
    spec = JobSpec(name="test", run=str(place), resources=resources.model_dump(mode="json"))
    launcher = SlurmLauncher(SlurmLauncher.Config())
    job_id = launcher.submit(spec)
    until(lambda: launcher.status(job_id).state not in ("pending", "running"))
    assert launcher.status(job_id).state == "finished"
    for index in (0, 1):
        assert record(place / "shards" / str(index))["job_id"] == f"{job_id}_{index}"
        assert "stopped politely" in log(place / "shards" / str(index), "server0")


def test_cancel_stops_servers_politely(place: Path, cluster: Cluster, cli: Any) -> None:
    job_id = start(place, service("server0", 0), service("server1", 1), client("server0", "server1"))
    until(lambda: (place / "logs/latest/main.log").exists() and "200" in log(place, "main"))
    began = time.monotonic()
    assert cli("slurm", "cancel", job_id).stdout == f"job {job_id} is cancelled\n"
    assert time.monotonic() - began < 20
    assert record(place)["code"] == 143
    assert "stopped politely" in log(place, "server0")
    assert "stopped politely" in log(place, "server1")
    assert cli("slurm", "status", str(place)).code == 1
    unknown = cli("slurm", "cancel", "999999")
    assert unknown.code == 7
    assert "does not know job 999999" in unknown.stderr


def test_a_server_that_ends_with_0_fails_the_job(place: Path, cluster: Cluster) -> None:
    job = cluster.wait(start(place, service("server0", 0), service("server1", 1, die=4), client("server0", "server1")))
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "70:0")
    assert record(place)["component"] == "server1"
    assert "ended with 0 while it was used" in record(place)["reason"]
    assert "stopped politely" in log(place, "server0")


def test_a_server_that_is_never_healthy(place: Path, cluster: Cluster) -> None:
    job = cluster.wait(start(place, service("server0", 0, warm=999), client("server0"), nodes=1, start_timeout=2))
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "75:0")
    assert "GET /health" in record(place)["reason"]


def test_a_server_that_crashes_at_its_start(place: Path, cluster: Cluster, cli: Any) -> None:
    broken = service("server0", 0).replace(argv=("sh", "-c", "echo CUDA out of memory >&2; exit 9"))
    began = time.monotonic()
    job_id = start(place, broken, client("server0"), nodes=1, start_timeout=600)
    job = cluster.wait(job_id)
    assert time.monotonic() - began < 30
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "70:0")
    # the last lines and the path of the log stand in the job's own log
    own = (place / f"slurm-{job_id}.out").read_text()
    assert "CUDA out of memory" in own
    assert str(place / "logs" / "attempt_1" / "server0.log") in own


@pytest.mark.parametrize("victim", ["pid", "parent"])
def test_kill_9_of_a_server_ends_the_job(place: Path, cluster: Cluster, victim: str) -> None:
    job_id = start(place, service("server0", 0), client("server0"), nodes=1)
    until(lambda: (place / "logs/latest/main.log").exists() and "200" in log(place, "main"))
    began = time.monotonic()
    os.kill(json.loads((place / "endpoints" / "server0.json").read_text())[victim], 9)
    job = cluster.wait(job_id)
    assert time.monotonic() - began < 15
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "70:0")
    assert record(place)["component"] == "server0"


def test_odd_arguments_arrive_unchanged(place: Path, cluster: Cluster) -> None:
    odd = ["a b", "$HOME", "q\"u'o", "n\nl", "ü→", ";", "*", "", "`id`", "\\", "--nodes=9", "%j", "{{port}}", "a;b\\;"]
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['ODD']]))"
    shown = main(sys.executable, "-c", code, *odd).replace(env={"ODD": "p,q = 'x' \"y\" $HOME\n"})
    folder = place / "50% it's a %j run"
    folder.mkdir()
    job_id = start(folder, shown, nodes=1)
    assert cluster.wait(job_id)["ExitCode"] == "0:0"
    odd[odd.index("{{port}}")] = "{port}"
    assert json.loads(log(folder, "main")) == [odd, "p,q = 'x' \"y\" $HOME\n"]
    assert (folder / f"slurm-{job_id}.out").exists()


def test_a_trajectory_server_beside_gen(place: Path, cluster: Cluster, cli: Any) -> None:
    """The command gets the address of a server that the job starts; a trainer outside takes the groups."""
    need("httpx", "atropos_serve")
    import httpx

    words = (*GEN, "--backend.token-ids", "--limit", "4", "--output", "run")
    done = cli("slurm", "submit", "--time", "10m", "--serve", "trajectories", "--", *words)
    assert done.code == 0, done.stderr
    endpoint = place / "run" / "endpoints" / "trajectories.json"
    until(endpoint.exists)
    found = json.loads(endpoint.read_text())
    taken: list[Any] = []
    with httpx.Client(base_url=f"http://{found['host']}:{found['ports']['http']}", timeout=30) as client:
        told = {"wandb_group": "", "wandb_project": "", "checkpoint_dir": "", "save_checkpoint_interval": 0}
        sizes = {"batch_size": 4, "max_token_len": 512, "starting_step": 0, "num_steps": 2}
        until(lambda: answers(client))
        client.post("/register", json={**told, **sizes}).raise_for_status()
        until(lambda: taken.extend(client.get("/batch").json()["batch"] or ()) or len(taken) == 4)
    until(lambda: (place / "run" / "exit.json").exists())
    assert record(place / "run")["code"] == 0, log(place / "run", "main")
    sent = {one["group_overrides"]["group_id"] for one in taken}
    assert sent == set(groups(place / "run"))
    assert (place / "run" / "trajectories").is_dir()


def answers(client: Any) -> bool:
    with contextlib.suppress(Exception):  # it is not there yet
        return bool(client.get("/status").status_code == 200)
    return False
