"""What is said of a job is true: jobs submitted again, ids of others, a controller that does not answer, keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import slurm_cluster
from .slurm_cluster import Cluster
from .slurm_support import ENV, GEN, PLAYER, cluster_fixture, groups, log, main, place_fixture, slurm, start, until  # noqa: F401

pytestmark = slurm

SHORT = ("--time", "10m", "--cpus", "1", "--mem", "300M", "--no-check")
SLEEP = (sys.executable, "-c", "import time; time.sleep(300)")
KEYED = f"""#!{sys.executable}
import os, sys, time
from atropos_authoring.mock_server import MockServer
w = sys.argv[1:]
host, port = w[w.index("--host") + 1], int(w[w.index("--port") + 1])
key = "Bearer " + os.environ["SERVER_SIDE"]
def door(request):  # as vLLM: /health is free
    refused = request.path.startswith("/v1") and request.headers.get("authorization") != key
    return dict(status=401, json=dict(error="Unauthorized")) if refused else None
with MockServer(flavor="vllm", models=(w[1],), host=host, port=port, handler=door):
    time.sleep(600)
"""


def submit(cli: Any, run: str, *options: str, limit: int = 2) -> Any:
    return cli("slurm", "submit", "--json", *SHORT, *options, "--folder", run, "--", *GEN, "--limit", str(limit))


def status(cli: Any, run: str) -> dict[str, Any]:
    found: dict[str, Any] = cli("slurm", "status", run, "--json").json
    return found


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """silent(words, "scontrol", ...): these programs fail with such words from now on; without programs all work."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def change(words: str = "", *programs: str) -> None:
        for path in folder.iterdir():
            path.unlink()
        for name in programs:
            (folder / name).write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 1\n')
            (folder / name).chmod(0o755)

    return change


def test_a_larger_limit_is_waited_for(place: Path, cli: Any) -> None:
    assert submit(cli, "run", "--wait", limit=2).code == 0
    held = submit(cli, "run", "--sbatch", "hold", limit=5)
    found = status(cli, "run")
    assert (found["state"], found["exit_code"]) == ("pending", None)
    assert {item["state"] for item in found["components"]} == {"not started"}
    assert "of an earlier job" in cli("slurm", "logs", "run", "main").stderr
    assert submit(cli, "run", limit=6).code == 7  # it is in the queue
    subprocess.run(["scontrol", "release", held.json["id"]], check=True)
    followed = cli("slurm", "logs", "-f", "run").stdout
    assert "5" in followed
    assert "2 of 2" not in followed
    assert status(cli, "run")["state"] == "finished"
    assert len(groups(place / "run")) == 5


def test_an_array_that_was_submitted_again(place: Path, cli: Any) -> None:
    assert submit(cli, "run", "--wait", "--array", "2", limit=4).code == 0
    held = submit(cli, "run", "--array", "2", "--sbatch", "hold", limit=4)
    found = status(cli, "run")
    assert [found["state"], *(shard["state"] for shard in found["shards"])] == ["pending"] * 3
    assert cli("slurm", "cancel", held.json["id"]).code == 0
    assert status(cli, "run")["state"] == "cancelled"


def test_a_long_list_of_waiting_tasks(place: Path, cli: Any) -> None:
    """SLURM cuts such a list off where it is not told otherwise, and tasks that it leaves out would be called lost."""
    job = submit(cli, "run", "--array", "90", "--sbatch", "hold", limit=90).json["id"]
    odd = [f"{job}_{number}" for number in range(1, 90, 2)]
    subprocess.run(["scancel", *odd], check=True)
    shards = status(cli, "run")["shards"]
    assert [shard["state"] for shard in shards] == ["pending", "lost"] * 45  # SLURM keeps no word of these
    assert "it never began" in shards[1]["reason"]
    assert cli("slurm", "cancel", job).code == 0
    assert status(cli, "run")["state"] == "cancelled"


def test_a_job_that_slurm_starts_again_has_not_ended(place: Path, cluster: Cluster, cli: Any) -> None:
    """An operator queues it again behind its end: the exit.json of the attempt before says nothing."""
    job = submit(cli, "run", "--requeue", "--wait").json["id"]
    assert status(cli, "run")["state"] == "finished"
    subprocess.run(["scontrol", "requeuehold", job], check=True)
    until(lambda: cluster.job(job)["JobState"] == "PENDING")
    assert status(cli, "run")["state"] == "pending"
    subprocess.run(["scontrol", "release", job], check=True)
    until(lambda: status(cli, "run")["state"] == "finished")
    assert status(cli, "run")["attempt"] == 2
    cli("slurm", "cancel", job)


def test_what_is_cancelled_is_not_failed(place: Path, cluster: Cluster, cli: Any) -> None:
    job = start(place / "run", main(*SLEEP), nodes=1)
    until(lambda: (place / "run/endpoints/main.json").exists())
    subprocess.run(["scancel", job], check=True)
    cluster.wait(job)
    found = status(cli, "run")
    assert found["state"] == "cancelled"
    assert "CANCELLED" in found["reason"]


@pytest.mark.parametrize(
    "words",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "scontrol: error: something that nobody has seen before",
    ],
)
def test_no_answer_is_not_an_answer(
    place: Path, cluster: Cluster, cli: Any, silent: Callable[..., None], words: str
) -> None:
    job = start(place / "run", main(*SLEEP), nodes=1)
    until(lambda: (place / "run/endpoints/main.json").exists())
    silent(words, "scontrol", "sacct", "squeue")
    found = status(cli, "run")
    assert (found["state"], found["silent"]) == ("unknown", True)
    assert "does not answer" in found["reason"]
    assert [item["state"] for item in cli("slurm", "list", "--json").json] == ["unknown"]
    for command in (("cancel", "run"), ("submit", *SHORT, "--folder", "run", "--", *GEN, "--limit", "1")):
        refused = cli("slurm", *command)
        assert refused.code == 7
        assert "know" not in refused.stderr
    silent()
    assert status(cli, "run")["state"] == "running"
    assert cli("slurm", "cancel", "run").code == 0
    assert cluster.wait(job)["JobState"] == "CANCELLED"


def test_a_submission_whose_answer_is_lost(place: Path, cluster: Cluster, cli: Any, tmp_path: Path) -> None:
    """SLURM takes the job, and sbatch fails: there is one job, and it is found. One that was not taken is an error."""
    (place / "programs").mkdir()
    fake = place / "programs/sbatch"
    lost = 'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1'
    path = f"{place / 'programs'}{os.pathsep}{os.environ['PATH']}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        for program, code in (
            (f'#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null; {lost}\n', 0),
            (f"#!/bin/sh\n{lost}\n", 7),
        ):
            fake.write_text(program)
            fake.chmod(0o755)
            done = submit(cli, f"run{code}", "--wait")
            assert done.code == code, done.stderr
    assert status(cli, "run0")["state"] == "finished"
    assert len(groups(place / "run0")) == 2
    assert not (place / "run7/submitted.json").exists()


def test_accounting_that_does_not_answer(place: Path, cli: Any, silent: Callable[..., None]) -> None:
    """The controller has forgotten the job, and the data base, which would know it, is away."""
    start(place / "run", main(*SLEEP), nodes=1)
    until(lambda: (place / "run/endpoints/main.json").exists())
    silent("slurm_load_jobs error: Invalid job id specified", "scontrol")
    assert status(cli, "run")["state"] == "unknown"  # `scontrol show config` fails as well
    silent("sacct: error: Unable to connect to slurmdbd", "sacct")
    path = place / "run/submitted.json"
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "id": "777777"}))
    found = status(cli, "run")
    assert (found["state"], found["silent"]) == ("unknown", True)
    silent()
    assert status(cli, "run")["state"] == "lost"
    path.write_text(kept)
    assert cli("slurm", "cancel", "run").code == 0


def test_a_number_that_another_job_has(place: Path, cluster: Cluster, cli: Any) -> None:
    """Ids began anew: the number of ours belongs to a job of another name, and to one of the same name."""
    job = start(place / "ours", main(*SLEEP), nodes=1)
    (place / "theirs").mkdir()
    others = [
        start(place / "theirs", main(*SLEEP), nodes=1),
        cluster.output("sbatch", "--parsable", "-J", "else", "-o", "/dev/null", "-n1", "--wrap", "sleep 300").strip(),
    ]
    path = place / "ours/submitted.json"
    kept = path.read_text()
    for other in others:
        path.write_text(json.dumps({**json.loads(kept), "id": other}))
        refused = cli("slurm", "cancel", "ours")
        assert refused.code == 7
        assert "another job now" in refused.stderr
        assert status(cli, "ours")["state"] == "lost"
        assert cluster.job(other)["JobState"] in ("RUNNING", "PENDING")
    path.write_text(kept)
    for text in (job, *others):
        assert cli("slurm", "cancel", text).code == 0


def test_another_cluster_knows_nothing_of_the_job(
    place: Path, cluster: Cluster, cli: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start(place / "run", main(*SLEEP), nodes=1)
    with slurm_cluster.running(tmp_path_factory.mktemp("other"), nodes=1, name="other"):
        found = status(cli, "run")
        assert found["state"] == "unknown"
        assert "cluster 'test'" in found["reason"]
        assert cli("slurm", "cancel", "run").code == 7
        assert submit(cli, "run").code == 7
    assert cluster.job(job)["JobState"] in ("PENDING", "RUNNING")
    assert cli("slurm", "cancel", "run").code == 0


def test_defaults_of_the_site(
    place: Path, cluster: Cluster, cli: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Used where nothing else says it, else named; never a word that only sbatch sees."""
    monkeypatch.setenv("SBATCH_ACCOUNT", "proj7")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "7")
    monkeypatch.setenv("SBATCH_WCKEY", "a key")
    monkeypatch.setenv("SBATCH_OUTPUT", "/nowhere/x")
    done = submit(cli, "run", "--sbatch", "hold")
    job = cluster.job(done.json["id"])
    assert (job["Account"], job["TimeLimit"]) == ("proj7", "00:10:00")
    assert job["StdOut"].startswith(str(place / "run"))
    assert "SBATCH_OUTPUT=/nowhere/x is not used" in caplog.text
    assert "SBATCH_TIMELIMIT=7 is not used: the job has --time=0-00:10:00" in caplog.text
    assert "SBATCH_ACCOUNT" not in caplog.text
    assert cli("slurm", "cancel", "run").code == 0
    shown = cli("slurm", "submit", "--dry-run", "--folder", "dry", "--", *GEN, "--limit", "1").stdout
    assert "#SBATCH --time=7\n" in shown
    assert "#SBATCH --wckey='a key'" in shown
    silenced = cli("slurm", "submit", "--dry-run", "--sbatch", "account=mine", "--folder", "dry", "--", *GEN)
    assert "--account=mine" in silenced.stdout
    assert "SBATCH_ACCOUNT=proj7 is not used" in silenced.stderr


def test_the_key_of_a_server_reaches_probe_and_client(place: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vLLM with VLLM_API_KEY: a wrong key is refused, and the variable is named."""
    (place / "bin").mkdir()
    (place / "bin/vllm").write_text(KEYED)
    (place / "bin/vllm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # leads out of the cluster, not to its nodes
    monkeypatch.setenv("SERVER_SIDE", "secret-value-1")
    words = ("gen", "./sums.py:Sums", "--model", "org/tiny", "--limit", "2", "--group-size", "1")
    sizes = ("--wait", "--nodes", "2", "--gpus-per-node", "1", "--tp", "1", "--start-timeout", "60", "--serve", "vllm")

    def wait(run: str) -> Any:
        return cli("slurm", "submit", *SHORT, *sizes, "--folder", run, "--", *words)

    monkeypatch.setenv("VLLM_API_KEY", "secret-value-1")
    done = wait("right")
    assert done.code == 0, done.stderr
    assert len(groups(place / "right")) == 2
    assert "secret-value-1" not in "".join(
        path.read_bytes().decode("latin-1") for path in (place / "right").glob("*.json*")
    )
    monkeypatch.setenv("VLLM_API_KEY", "secret-value-2")
    refused = wait("wrong")
    assert refused.code == 70
    assert "the key it was sent is that of VLLM_API_KEY" in refused.stderr
    monkeypatch.delenv("VLLM_API_KEY")
    assert "VLLM_API_KEY is not set" in wait("none").stderr


def test_waiting_through_a_controller_that_stands_still(place: Path, cluster: Cluster, cli: Any) -> None:
    """SIGSTOP of slurmctld itself: --wait says that SLURM does not answer, and waits on."""
    words = (
        "slurm",
        "submit",
        "--wait",
        *SHORT,
        "--folder",
        "run",
        "--",
        *GEN,
        "--backend.delay-s",
        "1",
        "--limit",
        "8",
    )
    command = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *words, "--workers", "1"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until(lambda: (place / "run/groups.jsonl").exists())
    pid = int((cluster.folder / "ctld.pid").read_text())
    os.kill(pid, 19)
    try:
        time.sleep(15)
    finally:
        os.kill(pid, 18)
    text, _ = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, text
    assert "lost" not in text
    assert len(groups(place / "run")) == 8


@pytest.mark.parametrize(
    ("lines", "code", "named"),
    [
        (["true", "false", "true"], 1, "at: false"),
        (["source quiet.sh"], 4, "at: source quiet.sh"),
        (["if true; then", "  exit 5", "fi"], 5, "at: exit 5"),
        (["exit 0"], 0, "at: exit 0"),
    ],
)
def test_a_set_up_line_that_fails_without_a_word(
    place: Path, cli: Any, lines: list[str], code: int, named: str
) -> None:
    (place / "quiet.sh").write_text("true\nexit 4\n")
    (place / "atropos.toml").write_text(f"[slurm]\nprofile = 'p'\n[slurm.profiles.p]\nsetup = {json.dumps(lines)}\n")
    done = submit(cli, "run", "--wait")
    assert done.code == (code or 7), done.stderr
    found = status(cli, "run")
    assert named in found["reason"]
    assert found["state"] == "failed"


def test_a_time_limit_is_named(place: Path, cluster: Cluster, cli: Any) -> None:
    """SLURM's SIGTERM at the limit: not "stopped by SIGTERM" alone, and no success."""
    words = (
        "slurm",
        "submit",
        "--json",
        "--time",
        "1m",
        "--cpus",
        "1",
        "--mem",
        "300M",
        "--no-check",
        "--folder",
        "run",
    )
    done = cli(*words, "--", *GEN, "--backend.delay-s", "10", "--workers", "1")
    assert cluster.wait(done.json["id"], 150)["JobState"] == "TIMEOUT"
    found = status(cli, "run")
    assert found["state"] == "failed"
    assert "time limit" in found["reason"]
    assert found["exit_code"] not in (0, None)
