"""Ids that name another job: a controller that lost its state, two clusters with one home, names of clusters in ids."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import slurm_cluster
from .slurm_cluster import Cluster
from .slurm_support import GEN, groups, main, place_fixture, slurm, start, until  # noqa: F401

pytestmark = slurm

SHORT = ("--time", "10m", "--cpus", "1", "--mem", "300M", "--no-check")
HELD = ("--sbatch", "hold")


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm"), nodes=1) as found:
        yield found


def submit(cli: Any, run: str, *options: str, limit: int = 1) -> Any:
    return cli("slurm", "submit", "--json", *SHORT, *options, "--folder", run, "--", *GEN, "--limit", str(limit))


def status(cli: Any, job: str) -> dict[str, Any]:
    found: dict[str, Any] = cli("slurm", "status", job, "--json").json
    return found


def test_a_job_after_one_that_cannot_be_waited_for(place: Path, cluster: Cluster, cli: Any) -> None:
    """One that has succeeded needs no waiting; one that failed, and a number that another job has now, are refused."""
    assert submit(cli, "done", "--wait").code == 0
    held = submit(cli, "held", *HELD).json["id"]
    failed = cluster.wait(start(place / "failed", main("false"), nodes=1))
    assert failed["JobState"] == "FAILED"
    for run, code in (("done", 0), ("held", 0), ("failed", 7)):
        after = submit(cli, f"after-{run}", *HELD, "--after", run)
        assert after.code == code, after.stderr
        if code == 0:
            found = cluster.job(after.json["id"])["Dependency"]
            assert found.partition("(")[0] == {"done": "", "held": f"afterok:{held}"}[run]
            assert cli("slurm", "cancel", after.json["id"]).code == 0
        else:
            assert "would never start" in after.stderr
    path = place / "held/submitted.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "id": failed["JobId"]}))
    assert "another job now" in submit(cli, "after-other", *HELD, "--after", "held").stderr
    path.write_text(kept)
    assert cli("slurm", "cancel", held).code == 0


def test_an_earlier_job_of_the_folder_by_its_id(place: Path, cluster: Cluster, cli: Any) -> None:
    """The first failed, the second finished, a third waits: each is what SLURM says of it, with its own log."""
    (place / "player.py").write_text("def reply(messages, request):\n    raise RuntimeError('not yet')\n")
    first = submit(cli, "run", "--wait")
    assert first.code != 0
    (place / "player.py").write_text("def reply(messages, request):\n    return '1'\n")
    assert submit(cli, "run", "--wait").code == 0
    submit(cli, "run", *HELD, limit=2)
    jobs = [item for item in cli("slurm", "list", "--json").json if item["folder"] == str(place / "run")]
    assert [item["state"] for item in jobs] == ["failed", "finished", "pending"]
    one, two, three = (item["id"] for item in jobs)
    assert status(cli, one)["exit_code"] == first.code
    assert status(cli, two)["folder_taken_by"] == three
    assert "not yet" in cli("slurm", "logs", one).stdout
    assert "not yet" not in cli("slurm", "logs", "-f", two).stdout
    assert cli("slurm", "cancel", one).code == 0  # it is over
    assert cluster.job(three)["JobState"] == "PENDING"
    assert cli("slurm", "cancel", three).code == 0


def test_the_controller_lost_its_state(place: Path, cli: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ids begin again at 1, so the same submission gets the number that it had."""
    with slurm_cluster.running(tmp_path_factory.mktemp("lossy"), nodes=1) as cluster:
        assert submit(cli, "run", "--wait").json["id"] == "1"
        assert submit(cli, "array", "--array", "2", *HELD, limit=2).code == 0
        assert submit(cli, "held", *HELD).code == 0
        cluster.kill_controller()
        shutil.rmtree(cluster.folder / "state")
        (cluster.folder / "state").mkdir()
        cluster.start_controller()
        assert [status(cli, run)["state"] for run in ("run", "array", "held")] == ["finished", "lost", "lost"]
        again = submit(cli, "run", *HELD, limit=2).json["id"]
        assert again == "1"
        assert (status(cli, "run")["state"], status(cli, "run")["exit_code"]) == ("pending", None)
        for _ in range(4):  # the numbers of the array and of the one that was held
            start(place / "else", main("sleep", "600"), nodes=1)
        for run in ("array", "held"):
            found = status(cli, run)
            assert (found["state"], cli("slurm", "cancel", run).code) == ("lost", 7)
            assert "another job now" in cli("slurm", "cancel", run).stderr
        assert {shard["state"] for shard in status(cli, "array")["shards"]} == {"lost"}
        assert "would never start" in submit(cli, "next", "--after", "held").stderr
        assert submit(cli, "held").code == 0  # what is lost may be given again
        cluster.output("scontrol", "release", again)
        cluster.wait(again)
        assert len(groups(place / "run")) == 2
        for job in cluster.output("squeue", "-h", "-o", "%A").split():
            cluster.output("scancel", job)
        until(lambda: not cluster.output("squeue", "-h"))


def test_two_clusters_have_the_same_numbers(
    place: Path, cluster: Cluster, cli: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """list, logs -f and --after of the one, asked for at the other; at home all is as it was."""
    monkeypatch.setattr("atropos_cli.jobs.follow._UNKNOWN_FOR", 1.0)
    here = start(place / "here", main("sleep", "600"), nodes=1)
    with slurm_cluster.running(tmp_path_factory.mktemp("other"), nodes=1, name="other") as other:
        there = ""
        for number in range(int(here)):
            there = start(place / f"there{number}", main("sleep", "600"), nodes=1)
        assert there == here
        states = {item["folder"]: item["state"] for item in cli("slurm", "list", "--all", "--json").json}
        assert states[str(place / "here")] == "unknown"
        assert states[str(place / f"there{int(here) - 1}")] in ("pending", "running")
        found = status(cli, there)  # the number alone: the job of the cluster that is asked
        assert found["folder"] == str(place / f"there{int(here) - 1}")
        followed = cli("slurm", "logs", "-f", "here")
        assert followed.code == 7
        assert "cluster 'test'" in followed.stderr
        refused = submit(cli, "next", "--after", "here")
        assert refused.code == 7
        assert "cluster 'test'" in refused.stderr
        for job in other.output("squeue", "-h", "-o", "%A").split():
            assert cli("slurm", "cancel", job).code == 0
    assert cluster.job(here)["JobState"] == "RUNNING"
    assert (status(cli, here)["folder"], status(cli, here)["state"]) == (str(place / "here"), "running")
    assert cli("slurm", "cancel", here).code == 0
    assert cluster.job(here)["JobState"] == "CANCELLED"


@pytest.fixture
def named(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """SLURM's commands as with a data base of clusters, which a test has not: they know --clusters=test."""
    folder = place / "named"
    folder.mkdir()
    for name in ("sbatch", "scontrol", "scancel", "squeue", "sacct"):
        lines = [
            "#!/bin/bash",
            f'echo "{name} $*" >> {folder}/calls',
            "words=(); for word; do case $word in --clusters=test) named=1;;",
            "--clusters=*) echo \"error: No cluster '${word#*=}' known by database.\" >&2; exit 1;;",
            '*) words+=("$word");; esac; done',
        ]
        if name == "sbatch":
            lines.append('grep -q clusters=test "${words[-1]}" && named=1')
            lines.append('sed -i "s/^#SBATCH --clusters=.*//" "${words[-1]}"')
            lines.append(f'text=$({shutil.which(name)} "${{words[@]}}") || exit 1')
            lines.append("echo $text${named:+;test}".replace(";", "\\;"))
        else:
            if name == "squeue":
                lines.append('[ -z "$named" ] || echo "CLUSTER: test"')
            lines.append(f'exec {shutil.which(name)} "${{words[@]}}"')
        (folder / name).write_text("\n".join(lines) + "\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_an_id_with_the_name_of_its_cluster(place: Path, cluster: Cluster, cli: Any, named: Path) -> None:
    """Every question names the cluster: status, logs, tasks of an array, cancel, --after."""
    there = ("--sbatch", "clusters=test")
    done = submit(cli, "run", *there, "--wait")
    assert done.code == 0, done.stderr
    job = done.json["id"]
    assert job.endswith(";test")
    assert status(cli, job)["state"] == status(cli, job.partition(";")[0])["state"] == "finished"
    array = submit(cli, "array", *there, *HELD, "--array", "2", limit=2)
    assert [shard["state"] for shard in status(cli, "array")["shards"]] == ["pending", "pending"]
    after = submit(cli, "after", *there, *HELD, "--after", "array")
    assert cluster.job(after.json["id"].partition(";")[0])["Dependency"].startswith("afterok:" + array.json["id"][:-5])
    for run in ("after", "array"):
        assert cli("slurm", "cancel", run).code == 0
    calls = (named / "calls").read_text().splitlines()
    cancelled = [line for line in calls if line.startswith("scancel ") and "--signal" not in line]
    assert len(cancelled) == 2
    assert all("--clusters=test" in line for line in cancelled)


def test_a_number_of_another_cluster_is_not_waited_for(place: Path, cluster: Cluster, cli: Any, named: Path) -> None:
    """Job 7 of cluster far is not our job 7; an id whose cluster cannot be asked is not called lost."""
    held = submit(cli, "run", *HELD).json["id"]
    path = place / "run/submitted.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "id": f"{held};far"}))
    found = status(cli, "run")
    assert found["state"] == "unknown"
    for words in (("cancel", "run"), ("submit", *SHORT, "--after", f"{held};far", "--folder", "n", "--", *GEN)):
        refused = cli("slurm", *words)
        assert refused.code == 7
        assert "far" in refused.stderr
    assert cluster.job(held)["JobState"] == "PENDING"
    path.write_text(kept)
    assert cli("slurm", "cancel", "run").code == 0


def test_the_answer_of_a_named_cluster_is_lost(place: Path, cluster: Cluster, cli: Any, named: Path) -> None:
    """The job is looked for where it was sent to, and its id has the cluster's name."""
    text = (named / "sbatch").read_text()
    lost = 'echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1'
    (named / "sbatch").write_text(text[: text.rindex("echo $text")] + lost + "\n")
    done = submit(cli, "run", "--sbatch", "clusters=test", *HELD)
    assert done.code == 0, done.stderr
    assert done.json["id"].endswith(";test")
    assert any(line.startswith("squeue --clusters=test") for line in (named / "calls").read_text().splitlines())
    subprocess.run(["scontrol", "release", done.json["id"][:-5]], check=True)
    cluster.wait(done.json["id"][:-5])
    assert status(cli, "run")["state"] == "finished"
