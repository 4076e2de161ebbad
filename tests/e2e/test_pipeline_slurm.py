"""A pipeline on a real SLURM: each step a job, in order; a failure cancels what comes after it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import slurm_cluster
from slurm_cluster import Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm_cluster.missing() is not None, reason=f"no SLURM: {slurm_cluster.missing()}"),
]
FLOW = """
resources = { time = "10m", mem = "500M" }

[steps.gen]
command = [
    "gen", "arithmetic", "--limit", "4", "--group-size", "4", "--output", "{output}",
    "--backend", "scripted", "--backend.mode", "random", "--backend.token-ids",
    "--backend.replies", "Answer: 7", "--backend.replies", "Answer: 12",
]
resources = { cpus = 2 }

[steps.scored]
command = ["score", "{steps.gen.output}", "-o", "{output}", "--reward", "length=1"]

[steps.rows]
command = ["sft-gen", "{steps.scored.output}", "-o", "{output}"]

[steps.look]
command = ["analyze", "{steps.gen.output}", "--json"]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm"), gpus=0) as found:
        yield found


@pytest.fixture
def flow(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "flow.toml"
    path.write_text(FLOW)
    return path


def submitted(cli: Callable[..., Any], *args: str) -> dict[str, str]:
    result = cli("pipeline", "run", "flow.toml", "-o", "out", "--on", "slurm", "--json", *args)
    assert result.code == 0, result.stderr
    jobs: dict[str, str] = result.json["jobs"]
    return jobs


def states(cli: Callable[..., Any]) -> dict[str, str]:
    return {step["name"]: step["state"] for step in cli("pipeline", "status", "out", "--json").json["steps"]}


def test_steps_run_in_order_as_jobs(cli: Callable[..., Any], cluster: Cluster, flow: Path) -> None:
    jobs = submitted(cli)
    assert list(jobs) == ["gen", "scored", "rows", "look"]
    details = {name: cluster.job(job) for name, job in jobs.items()}
    assert (details["gen"]["NumCPUs"], details["gen"]["TimeLimit"]) == ("2", "00:10:00")
    again = cli("pipeline", "run", "flow.toml", "-o", "out", "--on", "slurm", "--resume")
    assert (again.code, "already, as job" in again.stderr) == (7, True)
    for job in jobs.values():
        ended = cluster.wait(job)
        assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert set(states(cli).values()) == {"done"}
    assert Path("out/rows.jsonl").exists()
    assert "finished: 4 of 4 groups" in Path("out/steps/gen/log.txt").read_text()
    assert submitted(cli, "--resume") == {}
    here = cli("pipeline", "run", "flow.toml", "-o", "out", "--resume")
    assert (here.code, "rows: done already" in here.stderr) == (0, True)


def test_a_failed_step_cancels_what_comes_after_it(cli: Callable[..., Any], cluster: Cluster, flow: Path) -> None:
    flow.write_text(FLOW.replace("length=1", "no_such_reward=1"))
    jobs = submitted(cli)
    ended = {name: cluster.wait(job) for name, job in jobs.items()}
    assert {name: found["JobState"] for name, found in ended.items()} == {
        "gen": "COMPLETED",
        "scored": "FAILED",
        "rows": "CANCELLED",
        "look": "COMPLETED",
    }
    assert ended["scored"]["ExitCode"] == "4:0"
    assert states(cli) == {"gen": "done", "scored": "unfinished", "rows": "new", "look": "done"}
    assert cli("pipeline", "status", "out").code == 1
    flow.write_text(FLOW)
    resumed = submitted(cli, "--resume")
    assert list(resumed) == ["scored", "rows"]
    assert {cluster.wait(job)["JobState"] for job in resumed.values()} == {"COMPLETED"}
    assert set(states(cli).values()) == {"done"}


def test_a_refused_step_leaves_nothing_in_the_queue(cli: Callable[..., Any], cluster: Cluster, flow: Path) -> None:
    flow.write_text(FLOW + 'resources = { mem = "9000G" }\n')
    result = cli("pipeline", "run", "flow.toml", "-o", "out", "--on", "slurm")
    assert result.code == 7
    assert "step 'look' was not taken: sbatch: " in result.stderr
    assert "no step is left in the queue" in result.stderr
    assert cluster.output("squeue", "-h", "-t", "pending,running", "-o", "%A").split() == []


def test_slurm_submit_takes_a_pipeline_file(cli: Callable[..., Any], cluster: Cluster, flow: Path) -> None:
    refused = cli("slurm", "submit", "--nodes", "2", "flow.toml")
    assert (refused.code, "--nodes is not for a pipeline" in refused.stderr) == (2, True)
    result = cli("slurm", "submit", "--folder", "out", "--json", "flow.toml")
    assert result.code == 0, result.stderr
    assert {cluster.wait(job)["JobState"] for job in result.json["jobs"].values()} == {"COMPLETED"}
    assert set(states(cli).values()) == {"done"}


def test_dry_run_shows_scripts_and_submits_nothing(cli: Callable[..., Any], cluster: Cluster, flow: Path) -> None:
    result = cli("pipeline", "run", "flow.toml", "-o", "out", "--on", "slurm", "--dry-run", "--json")
    assert result.code == 0, result.stderr
    rows = {row["step"]: row for row in result.json}
    assert rows["rows"]["after"] == ["scored"]
    assert "#SBATCH --cpus-per-task=2" in rows["gen"]["script"]
    assert "afterok" in cli("pipeline", "run", "flow.toml", "-o", "out", "--on", "slurm", "--dry-run").stdout
    assert not Path("out").exists()


def test_servers_of_a_step_are_in_its_plan(cli: Callable[..., Any], flow: Path, tmp_path: Path) -> None:
    """The servers' addresses reach the step's command; the step itself is the same as here."""
    model = tmp_path / "model"
    model.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2, "vocab_size": 100}))
    text = FLOW.replace("cpus = 2", 'cpus = 2, serve = "vllm"').replace(
        '"--backend", "scripted"', f'"--model", "{model}"'
    )
    for word in (
        '"--backend.mode", "random", "--backend.token-ids",',
        '"--backend.replies", "Answer: 7", "--backend.replies", "Answer: 12",',
    ):
        text = text.replace(word, "")
    flow.write_text(text.replace(", \n", ",\n"))
    result = cli("pipeline", "run", "flow.toml", "-o", "out", "--on", "slurm", "--dry-run", "--json")
    assert result.code == 0, result.stderr
    plan = result.json[0]["plan"]
    roles = {item["name"]: item["role"] for item in plan["components"]}
    assert sorted(roles.values()) == ["main", "service"]
    main = next(item for item in plan["components"] if item["role"] == "main")
    assert main["argv"][-2] == "--base-url"
    assert main["argv"][-1].startswith("http://{endpoint:")
