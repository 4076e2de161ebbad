"""`atropos slurm submit -- train` on a real SLURM: two nodes train together, and a job that is queued again goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atropos_authoring.trainers import tiny_model
from needed import need

from .slurm_cluster import Cluster
from .slurm_support import cluster_fixture, log, place_fixture, record, slurm, until  # noqa: F401

need("torch", "trl", "atropos_local")
pytestmark = slurm

STEPS = 8
DIGITS = """
from atropos_authoring.digits import Digits
"""


def _steps(run: Path) -> list[int]:
    try:
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return []
    return [row["step"] for row in rows if row["kind"] == "train"]


def test_two_nodes_train_together_and_go_on_after_a_requeue(place: Path, cluster: Cluster, cli: Any) -> None:
    (place / "digits.py").write_text(DIGITS)
    model = tiny_model(place / "model")
    done = cli(
        *("slurm", "submit", "--json", "--nodes", "2", "--time", "10m", "--requeue", "--env", "OMP_NUM_THREADS=1"),
        *("--", "train", "grpo", "--env", "./digits.py:Digits", "--model", str(model), "--output", "run"),
        *("--backend.chat-template", "plain", "--max-tokens", "8", "--group-size", "4", "--prompts-per-step", "4"),
        *("--steps", str(STEPS), "--save-every", "2"),
    )
    assert done.code == 0, done.stderr
    job, run = done.json["id"], place / "run"
    until(lambda: len(_steps(run)) >= 3)
    before = len(_steps(run))
    cluster.output("scancel", "--signal=USR1", "--batch", job)  # what comes before the time limit
    until(lambda: cluster.job(job).get("Restarts") == "1")
    assert record(run) | {"code": 138, "requeued": True} == record(run), log(run, "main")
    stopped = list((run / "checkpoints").glob("step-*"))
    assert cluster.wait(job, 240)["JobState"] == "COMPLETED", log(run, "main")
    assert json.loads((run / "train.json").read_text())["state"] == "finished"
    saved = [int(path.name.removeprefix("step-")) for path in stopped]
    assert f"resumed from step {max(saved)}" in log(run, "main")
    assert max(saved) >= before, "the step at hand was not saved"
    assert _steps(run) == list(range(1, STEPS + 1))
    lines = [(folder / "groups.jsonl").read_bytes().count(b"\n") for folder in (run, run / "ranks" / "1")]
    assert lines == [2 * STEPS, 2 * STEPS]
    assert (run / "model" / "model.safetensors").exists()


def test_a_batch_that_does_not_come_out_even_is_refused_before_it_waits(place: Path, cli: Any) -> None:
    words = ("train", "grpo", "--env", "arithmetic", "--model", "smollm2", "--prompts-per-step", "5")
    done = cli("slurm", "submit", "--nodes", "2", "--", *words)
    assert done.code == 3
    assert "--prompts-per-step 5 cannot be split over 2 processes" in done.stderr
