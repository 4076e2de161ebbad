"""`slurm submit --serve vllm` with a real vLLM on CPU, on a real SLURM. Slow, and only where both are.

ATROPOS_TEST_VLLM names vLLM's Python, ATROPOS_TEST_VLLM_MODEL a folder with a small model.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .slurm_cluster import Cluster
from .slurm_support import cluster_fixture, log, place_fixture, processes_of, record, slurm, until  # noqa: F401
from .test_launch_real import MODEL, PYTHON, below

pytestmark = [
    *slurm,
    pytest.mark.vllm,
    pytest.mark.skipif(not (PYTHON and MODEL), reason="ATROPOS_TEST_VLLM and ATROPOS_TEST_VLLM_MODEL are not set"),
]
SERVE = ("--serve", "vllm", "--model", MODEL, "--engine-python", PYTHON, "--start-timeout", "600")
OPTIONS = ("--enforce-eager", "--max-model-len=2048", "--max-num-seqs=8")


@pytest.fixture
def submit(cli: Callable[..., Any], place: Path) -> Callable[..., tuple[str, Path]]:
    """submit(command...) -> (job id, job folder)"""

    def call(*command: str) -> tuple[str, Path]:
        engine = [f"--server-option={option}" for option in OPTIONS]
        words = ("--cpus", "2", "--env", "VLLM_CPU_KVCACHE_SPACE=1", "--env", "OMP_NUM_THREADS=1", "--json")
        done = cli("slurm", "submit", *SERVE, *engine, *words, "--", *command, "-o", str(place / "run"))
        assert done.code == 0, done.stderr
        return json.loads(done.stdout)["id"], place / "run"

    return call


def test_gen_textworld_finishes(submit: Callable[..., tuple[str, Path]], cluster: Cluster, place: Path) -> None:
    sizes = ("--limit", "2", "--group-size", "2", "--max-steps", "2", "--max-tokens", "24")
    began = time.monotonic()
    job, folder = submit("gen", "textworld", *sizes)
    ended = cluster.wait(job, 900)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0"), log(folder, "main") + log(folder, "server0")
    assert json.loads((place / "run" / "summary.json").read_text())["groups_done"] == 2
    print(f"gen textworld under SLURM with vLLM: {time.monotonic() - began:.0f} s")


@pytest.mark.parametrize("victim", ["EngineCor", "Worker", ""])
def test_a_killed_process_ends_the_job(
    victim: str, submit: Callable[..., tuple[str, Path]], cluster: Cluster, place: Path
) -> None:
    """The engine, its worker, and the API server: the job ends at once, with the code of a dead service."""
    sizes = ("--limit", "500", "--group-size", "2", "--max-steps", "40", "--max-tokens", "64")
    job, folder = submit("gen", "textworld", *sizes)
    until(lambda: (place / "run" / "plan.json").exists(), 900)
    endpoint = json.loads((folder / "endpoints" / "server0.json").read_text())
    tree = below(endpoint["parent"])
    pid = next(pid for pid, name in tree.items() if victim in name) if victim else endpoint["pid"]
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    ended = cluster.wait(job, 60)
    took = time.monotonic() - began
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "70:0"), record(folder)
    assert took < 10
    deadline = time.monotonic() + 10
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
    print(f"{victim or 'API server'} killed: the job ended after {took:.1f} s")
