"""Runs in shards on a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_ray.launcher import RayConfig, RayLauncher
from atropos_ray.shard import NotShared, ShardLost, carry_out
from row_files import make_groups

from atropos_cli.sdk.launchers import JobSpec, LaunchError

# Seeded by task and seed, so that the replies do not depend on who asks when.
GEN = (
    *("gen", "arithmetic", "--limit", "24", "--group-size", "2", "--workers", "2", "--backend", "scripted"),
    *("--backend.mode", "random", "--backend.token-ids"),
    *(word for number in range(0, 40, 3) for word in ("--backend.replies", f"Answer: {number}")),
)
SLOW = ("--backend.delay-s", "0.2", "--drain", "0")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of two raylets with one CPU each."""
    pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        found.add_node(num_cpus=1)
        yield found.address
    finally:
        found.shutdown()


def start(address: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "atropos_cli", *args],
        env={**os.environ, "RAY_ADDRESS": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def atropos(address: str, *args: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    child = start(address, *args)
    out, err = child.communicate(timeout=240)
    return child.returncode, out, err


def groups(run: Path) -> list[dict[str, Any]]:
    lines = (run / "groups.jsonl").read_text().splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda group: str(group["group_id"]))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The groups of one process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    code, _, err = atropos("", *GEN, "--output", str(run))
    assert code == 0, err
    return groups(run)


def wait_for(check: Callable[[], Any], what: str, seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)
    return found


def owner(shard: Path) -> int | None:
    """The process that carries the shard out, once it has written a group."""
    if not (shard / "groups.jsonl").exists() or not (shard / "groups.jsonl").stat().st_size:
        return None
    found = re.match(r"pid (\d+) ", (shard / "lock").read_text())
    return int(found[1]) if found else None


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def starts(shard: Path) -> list[str]:
    events = [json.loads(line) for line in (shard / "log.jsonl").read_text().splitlines()]
    return [event["time"] for event in events if event["event"] == "started"]


@pytest.mark.slow
def test_the_groups_are_those_of_one_process(cluster: str, alone: list[dict[str, Any]], tmp_path: Path) -> None:
    run = tmp_path / "a run"
    code, out, err = atropos(cluster, *GEN, *SLOW, "--on", "ray", "--shards", "2", "--output", str(run), "--json")
    assert code == 0, err
    assert groups(run) == alone
    assert json.loads(out)["state"] == "finished"
    assert "[0] finished" in err
    assert "[1] finished" in err
    both = [len(groups(run / "shards" / str(number))) for number in range(2)]
    assert sum(both) == 24
    assert min(both) > 0
    # One CPU on each node: what overlaps in time was on both.
    spans = []
    for number in range(2):
        events = [json.loads(line) for line in (run / "shards" / str(number) / "log.jsonl").read_text().splitlines()]
        spans.append((events[0]["time"], events[-1]["time"]))
    assert max(begin for begin, _ in spans) <= min(end for _, end in spans)
    again = atropos(cluster, *GEN, "--on", "ray", "--shards", "2", "--output", str(run))
    assert (again[0], "--resume" in again[2]) == (6, True)
    other = atropos(cluster, *GEN, "--on", "ray", "--shards", "3", "--output", str(run), "--resume")
    assert (other[0], "--shards 2" in other[2]) == (6, True)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["run", "worker"])
def test_a_killed_shard_is_begun_again_and_goes_on(
    cluster: str, alone: list[dict[str, Any]], tmp_path: Path, victim: str
) -> None:
    """kill -9 of the run, and of the Ray worker above it."""
    run = tmp_path / "run"
    child = start(cluster, *GEN, *SLOW, "--on", "ray", "--shards", "2", "--output", str(run))
    shard = run / "shards" / "0"
    pid = wait_for(lambda: owner(shard), "a group of shard 0")
    os.kill(pid if victim == "run" else parent_of(pid), signal.SIGKILL)
    _, err = child.communicate(timeout=240)
    assert child.returncode == 0, err
    assert groups(run) == alone
    assert len(starts(shard)) == 2
    assert json.loads((shard / "summary.json").read_text())["groups_resumed"] > 0


@pytest.mark.slow
def test_ctrl_c_keeps_the_groups_and_resume_goes_on(cluster: str, alone: list[dict[str, Any]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = (*GEN, "--on", "ray", "--shards", "2", "--output", str(run))
    child = start(cluster, *command, "--backend.delay-s", "1", "--drain", "0")
    wait_for(lambda: owner(run / "shards" / "0"), "a group of shard 0")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=240)
    assert child.returncode == 130, err
    assert "--resume" in err
    assert not (run / "groups.jsonl").exists()
    kept = len(groups(run / "shards" / "0"))
    assert 0 < kept < 24
    code, _, err = atropos(cluster, *command, "--resume")  # the backend's delay is not part of what a run is
    assert code == 0, err
    assert groups(run) == alone
    resumed = json.loads((run / "shards" / "0" / "summary.json").read_text())["groups_resumed"]
    assert resumed >= kept


@pytest.mark.slow
def test_the_exit_code_of_a_shard_is_that_of_the_command(cluster: str, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        server = ("--backend", "openai", "--base-url", url, "--max-wait", "0.2")
        place = ("--on", "ray", "--shards", "2", "--output", str(tmp_path / "run"))
        code, _, err = atropos(cluster, "gen", "arithmetic", "--limit", "4", *server, *place)
    assert code == 5, err
    assert "shard 0 with exit code 5" in err


@pytest.mark.slow
def test_rows_are_compared_over_shards_by_ray_data(cluster: str, tmp_path: Path) -> None:
    """Near duplicates of a task and a cap on tasks, as one process finds them."""
    pytest.importorskip("pyarrow", reason="Ray Data needs pyarrow")
    pytest.importorskip("datasketch", reason="near duplicates need datasketch")
    file = make_groups(tmp_path / "a.jsonl", 60)
    for words in (("filter", "--dedup", "near", "--near-threshold", "0.6"), ("sft-gen", "--max-per-task", "2")):
        for name, more in (("one", ()), ("two", ("--on", "ray", "--shards", "3", "--on-option", "num_cpus=0.5"))):
            output = tmp_path / f"{words[0]}-{name}.jsonl"
            code, _, err = atropos(cluster, words[0], str(file), *words[1:], "-o", str(output), *more)
            assert code == 0, err
        one, two = (tmp_path / f"{words[0]}-{name}.jsonl" for name in ("one", "two"))
        assert two.read_bytes() == one.read_bytes()
        assert not list(tmp_path.glob("*.shards"))


def test_no_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        code, _, err = atropos(address, *GEN, "--on", "ray", "--output", str(tmp_path / "run"))
    assert code == 7
    assert "there is no Ray cluster" in err
    assert "ray start --head" in err
    assert not (tmp_path / "run").exists()


def test_a_shard_says_what_is_missing_where_it_runs(tmp_path: Path) -> None:
    with pytest.raises(NotShared, match="is not there on node"):
        carry_out(str(tmp_path / "elsewhere"), str(tmp_path), {})
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(NotShared, match="working directory"):
        carry_out(str(tmp_path), str(tmp_path / "gone"), {})
    assert carry_out(str(tmp_path), str(tmp_path), {}) == 6  # a plan that is none
    assert "is not a plan" in (tmp_path / "output.log").read_text()


def test_a_run_that_is_killed_is_lost_not_failed(tmp_path: Path) -> None:
    code, _, err = atropos("", *GEN[:2], *GEN[4:], *SLOW, "--output", str(tmp_path / "run"), "--limit", "1")
    assert code == 0, err
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    plan["limit"] = None
    (tmp_path / "run" / "plan.json").write_text(json.dumps(plan))
    assassin = subprocess.Popen([sys.executable, "-c", ASSASSIN, str(tmp_path / "run" / "lock")])
    with pytest.raises(ShardLost, match="SIGKILL"):
        carry_out(str(tmp_path / "run"), str(tmp_path), {})
    assert assassin.wait() == 0


ASSASSIN = """
import os, re, sys, time
while True:
    try:
        pid = int(re.match(r"pid (\\d+) ", open(sys.argv[1]).read())[1])
        os.kill(pid, 9)
        break
    except (OSError, TypeError):
        time.sleep(0.05)
"""


def test_rendering_shows_no_values(tmp_path: Path) -> None:
    job = JobSpec(name="x", run=str(tmp_path), resources={"shards": 2}, cwd="/", env={"OPENAI_API_KEY": "secret-value"})
    text = RayLauncher(RayConfig()).render(job)
    assert text == RayLauncher(RayConfig()).render(job)
    assert json.loads(text)["tasks"] == [str(tmp_path / "shards" / number) for number in "01"]
    assert "secret-value" not in text
    with contextlib.suppress(LaunchError):
        RayLauncher().status("unknown")
        raise AssertionError("a job that is not known has no status")


def test_the_manifest_needs_no_ray() -> None:
    names = "[spec.name for spec in atropos_ray.atropos_register_launchers()]"
    code = f"import sys, atropos_ray; print({names}, 'ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['ray'] False\n"
