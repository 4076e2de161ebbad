"""Preemption on a real SLURM: what --requeue makes of it, with and without a grace time, and what is said without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import slurm_cluster
from .slurm_cluster import Cluster
from .slurm_support import GEN, groups, log, main, place_fixture, processes_of, record, slurm, start, until  # noqa: F401

pytestmark = slurm

SHORT = ("--time", "10m", "--cpus", "1", "--mem", "300M", "--no-check", "--signal-before", "60")
SLOW = ("--backend.delay-s", "1", "--workers", "1", "--limit", "12")


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm"), nodes=1, preempt=True) as found:
        yield found


def occupy(cluster: Cluster, seconds: int = 5) -> None:
    """A job of higher priority that takes all cores."""
    words = ("-p", "high", "-c", "4", "--mem-per-cpu=1", "-t", "5", "-J", "important", "-o", "/dev/null")
    subprocess.run(["sbatch", *words, "--wrap", f"sleep {seconds}"], check=True, capture_output=True)


def submit(cli: Any, run: str, *options: str) -> str:
    done = cli("slurm", "submit", "--json", *SHORT, *options, "--folder", run, "--", *GEN, *SLOW)
    assert done.code == 0, done.stderr
    return str(done.json["id"])


def status(cli: Any, run: str) -> dict[str, Any]:
    found: dict[str, Any] = cli("slurm", "status", run, "--json").json
    return found


def begun(run: Path) -> None:
    until(lambda: (run / "groups.jsonl").exists() and len(groups(run)) > 1)


def test_it_goes_on_and_so_do_its_successors(place: Path, cluster: Cluster, cli: Any) -> None:
    """GraceTime=30: the command ends politely within it, and the job is queued again."""
    job = submit(cli, "run", "--requeue", "--max-requeues", "1")
    begun(place / "run")
    after = submit(cli, "next", "--after", "run")
    occupy(cluster)
    until(lambda: cluster.job(job)["Restarts"] == "1")
    ended = record(place / "run")
    assert (ended["code"], ended["requeued"], ended["restarts"]) == (143, True, 0)
    assert ended["reason"].startswith("preempted")
    assert status(cli, "run")["state"] in ("pending", "running")
    assert cluster.wait(job, 120)["JobState"] == "COMPLETED"
    assert status(cli, "run")["state"] == "finished"
    assert len(groups(place / "run")) == 12
    assert cluster.wait(after, 120)["JobState"] == "COMPLETED"


def test_without_requeue_it_says_why(place: Path, cluster: Cluster, cli: Any) -> None:
    job = submit(cli, "run")
    begun(place / "run")
    occupy(cluster, 1)
    cluster.wait(job)
    found = status(cli, "run")
    assert found["state"] in ("failed", "cancelled")
    assert "preempted" in found["reason"]
    assert cli("slurm", "status", "run").code == 1


def test_a_server_that_is_told_first_is_not_to_blame(place: Path, cluster: Cluster, cli: Any) -> None:
    """SLURM tells all steps at once: the server ends before main does."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
    programs = (main(sys.executable, "-c", deaf), server_that_obeys())
    job = start(place / "run", *programs, nodes=1, max_requeues=3, drain=5)
    until(lambda: (place / "run/endpoints/main.json").exists())
    occupy(cluster, 1)
    until(lambda: cluster.job(job).get("Restarts") == "1" or (place / "run/exit.json").exists())
    ended = record(place / "run")
    assert (ended["code"], ended["requeued"]) == (143, True)
    assert cli("slurm", "cancel", job).code == 0


def server_that_obeys() -> Any:
    from atropos_cli.domain.job import Component

    program = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(300)"
    return Component(name="server0", role="service", argv=(sys.executable, "-c", program))


def test_no_grace_at_all(place: Path, cluster: Cluster, cli: Any) -> None:
    """SLURM queues it again by itself, and no exit.json of the attempt counts."""
    job = submit(cli, "run", "--requeue", "--sbatch", "partition=now")
    begun(place / "run")
    occupy(cluster)
    until(lambda: cluster.job(job)["Restarts"] == "1")
    found = status(cli, "run")
    assert (found["state"], found["exit_code"]) in (("pending", None), ("running", None))
    assert cluster.wait(job, 120)["JobState"] == "COMPLETED"
    assert len(groups(place / "run")) == 12


def test_a_training_goes_on(place: Path, cluster: Cluster, cli: Any) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("trl")
    from atropos_authoring.trainers import tiny_model

    model = tiny_model(place / "model")
    (place / "digits.py").write_text("from atropos_authoring.digits import Digits\n")
    done = cli(
        *("slurm", "submit", "--json", *SHORT[:2], "--requeue", "--env", "OMP_NUM_THREADS=1", "--mem", "1500M"),
        *("--", "train", "grpo", "--env", "./digits.py:Digits", "--model", str(model), "--output", "run"),
        *("--backend.chat-template", "plain", "--max-tokens", "8", "--group-size", "4", "--prompts-per-step", "4"),
        *("--steps", "40", "--save-every", "5"),
    )
    assert done.code == 0, done.stderr
    job, metrics = done.json["id"], place / "run/metrics.jsonl"
    until(
        lambda: (
            metrics.exists()
            and metrics.read_text().count('"kind": "train"') + metrics.read_text().count('"kind":"train"') > 2
        ),
        180,
    )
    occupy(cluster)
    until(lambda: cluster.job(job)["Restarts"] == "1")
    assert record(place / "run")["requeued"] is True
    assert cluster.wait(job, 300)["JobState"] == "COMPLETED", log(place / "run", "main")
    assert json.loads((place / "run/train.json").read_text())["state"] == "finished"
    assert "resumed from step" in log(place / "run", "main")
