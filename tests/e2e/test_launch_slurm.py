"""`launch-* --slurm` on a real SLURM of two nodes, with a stand-in engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import slurm_cluster
from slurm_cluster import Cluster
from stand_in import put_engines

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm_cluster.missing() is not None, reason=f"no SLURM: {slurm_cluster.missing()}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def model(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_engines(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"num_attention_heads": 8, "num_hidden_layers": 2, "hidden_size": 64})
    )
    return folder


def atropos(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)


def test_servers_on_two_nodes(model: Path) -> None:
    words = ("launch-sglang", str(model), "--slurm", "--nodes", "2", "--gpus", "2", "--tp", "2", "--time", "10m")
    shown = atropos(*words, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "#SBATCH" in shown.stdout
    assert not (model.parent / "state").exists()
    done = atropos(*words, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["launcher"], record["state"], len(record["urls"])) == ("slurm", "ready", 2)
    assert record["capabilities"]["token_ids"] is True
    urls = [word for url in record["urls"] for word in ("--base-url", url)]
    made = atropos("gen", "arithmetic", *urls, "--limit", "4", "--group-size", "2", "-o", "-")
    assert made.returncode == 0, made.stderr
    assert len(made.stdout.splitlines()) == 4
    again = atropos(*words)
    assert again.returncode == 7
    assert "is ready already" in again.stderr
    assert atropos("launch-sglang", "--status", "--name", "tiny").returncode == 0
    stopped = atropos("launch-sglang", "--stop", "--name", "tiny")
    assert stopped.returncode == 0, stopped.stderr
    assert atropos("launch-sglang", "--status", "--name", "tiny").returncode == 1
    logs = model.parent / "state/atropos/servers/tiny/logs/latest"
    assert {path.stem for path in logs.glob("server*.log")} == {"server0", "server1"}


def test_a_job_whose_server_fails(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "memory")
    done = atropos("launch-sglang", str(model), "--slurm", "--gpus", "1", "--time", "10m")
    assert done.returncode == 7
    assert "CUDA out of memory" in done.stderr


def status(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(atropos("launch-vllm", "--status", "--name", name, "--json").stdout)
    return found


def test_a_server_again_under_the_same_name(model: Path, cluster: Cluster) -> None:
    """The end of the server before is not that of this one, which waits, and can be stopped."""
    words = ("launch-vllm", str(model), "--slurm", "--gpus", "1", "--time", "10m", "--name", "again")
    first = atropos(*words, "--json")
    assert first.returncode == 0, first.stderr
    assert atropos("launch-vllm", "--stop", "--name", "again").returncode == 0
    assert status("again")["state"] == "stopped"
    for node in ("n1", "n2"):
        cluster.output("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        begun = atropos(*words, "--no-wait")
        assert begun.returncode == 0, begun.stderr
        found = status("again")
        assert (found["state"], found["code"], found["urls"]) == ("starting", None, [])
        assert atropos(*words).returncode == 7  # the name is taken
    finally:
        for node in ("n1", "n2"):
            cluster.output("scontrol", "update", f"nodename={node}", "state=resume")
    assert atropos("launch-vllm", "--stop", "--name", "again").returncode == 0
    job = json.loads((model.parent / "state/atropos/servers/again/submitted.json").read_text())["id"]
    assert cluster.wait(job)["JobState"] == "CANCELLED"


def test_a_server_that_an_operator_cancelled(model: Path, cluster: Cluster) -> None:
    """Its record still says that it is ready."""
    words = ("launch-vllm", str(model), "--slurm", "--gpus", "1", "--time", "10m", "--name", "gone", "--json")
    job = json.loads(atropos(*words).stdout)["job_id"]
    assert status("gone")["state"] == "ready"
    cluster.output("scancel", "--signal=KILL", "--full", job)
    cluster.wait(job)
    assert status("gone")["state"] in ("failed", "stopped", "gone")
    again = atropos(*words)
    assert again.returncode == 0, again.stderr
    assert atropos("launch-vllm", "--stop", "--name", "gone").returncode == 0
