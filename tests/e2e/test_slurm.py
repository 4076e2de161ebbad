"""`atropos slurm` on a real SLURM of two nodes: submit, follow, shards, dependencies, the time limit."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from .slurm_cluster import Cluster
from .slurm_support import (  # noqa: F401
    ENV,
    GEN,
    PLAYER,
    cluster_fixture,
    groups,
    log,
    main,
    place_fixture,
    record,
    slurm,
    start,
    until,
)

pytestmark = slurm

SLOW = """
    import pathlib, time
    time.sleep(0 if pathlib.Path("fast").exists() else 2)
"""


def test_one_gen_job(place: Path, cli: Any) -> None:
    """Field case G01 too: the folder of the log is not there before."""
    done = cli("slurm", "submit", "--wait", "--json", "--time", "10m", "--", *GEN, "--limit", "3", "--output", "a run")
    assert done.code == 0, done.stderr
    assert done.json["state"] == "finished"
    assert done.json["exit_code"] == 0
    assert len(groups(place / "a run")) == 3
    assert record(place / "a run")["code"] == 0
    shown = cli("slurm", "status", "a run")
    assert shown.code == 0
    assert "finished" in shown.stdout
    assert "3" in cli("slurm", "logs", "a run", "main").stdout
    assert [item["state"] for item in cli("slurm", "list", "--json").json] == ["finished"]


def test_a_queued_job_does_what_was_submitted(place: Path, cluster: Cluster, cli: Any) -> None:
    """What is changed in atropos.toml while a job waits does not change it: neither a plan, nor options of words."""
    config = place / "atropos.toml"
    config.write_text("limit = 2\ngroup_size = 3\n")
    play = (*GEN[:6], "--output", "run")
    count = ("eval", *GEN[1:6], "--output", "counted")
    jobs = [
        cli("slurm", "submit", "--json", "--sbatch", "hold", "--time", "10m", "--", *words).json["id"]
        for words in (play, count)
    ]
    config.write_text("limit = 5\ngroup_size = 4\n[sampling]\ntemperature = 0.5\n")
    for job in jobs:
        cluster.output("scontrol", "release", job)
    assert [cluster.wait(job, 90)["JobState"] for job in jobs] == ["COMPLETED"] * 2
    assert [len(rollouts) for rollouts in groups(place / "run").values()] == [3, 3]
    assert len(groups(place / "counted")) == 2
    plan = json.loads((place / "run" / "plan.json").read_text())
    assert (plan["limit"], plan["group_size"], plan["sampling"]["temperature"]) == (2, 3, 1.0)


def test_a_failing_command_gives_its_own_code(place: Path, cli: Any) -> None:
    words = ("eval", "./sums.py:Sums", "--backend", "scripted", "--no-such-option", "1")
    refused = cli("slurm", "submit", "--", *words)
    assert refused.code == 3
    assert "no-such-option" in refused.stderr
    done = cli("slurm", "submit", "--no-check", "--wait", "--", *words)
    assert done.code == 2
    assert "no-such-option" in cli("slurm", "logs", "eval", "main").stdout
    assert cli("slurm", "status", "eval").code == 1


def test_array_of_four_shards_merges_to_the_unsharded_run(place: Path, cli: Any) -> None:
    assert cli(*GEN, "--output", "whole").code == 0
    done = cli("slurm", "submit", "--wait", "--json", "--array", "4", "--time", "10m", "--", *GEN, "--output", "parts")
    assert done.code == 0, done.stderr
    assert [item["state"] for item in done.json["shards"]] == ["finished"] * 4
    assert done.json["merged"]
    assert groups(place / "parts") == groups(place / "whole")
    assert len(groups(place / "parts")) == 24
    counts = [len(groups(place / "parts" / "shards" / str(number))) for number in range(4)]
    assert sum(counts) == 24
    assert min(counts) > 0
    assert json.loads((place / "parts" / "summary.json").read_text())["state"] == "finished"
    assert not list((place / "parts").glob(".merge*"))


def test_a_chain_whose_middle_fails(place: Path, cluster: Cluster, cli: Any) -> None:
    first = cli("slurm", "submit", "--json", "--", *GEN, "--limit", "1", "--output", "first").json["id"]
    bad = cli(
        "slurm", "submit", "--json", "--no-check", "--after", first, "--", *GEN, "--limit", "0", "--output", "bad"
    )
    last = cli("slurm", "submit", "--json", "--after", "bad", "--", *GEN, "--limit", "1", "--output", "last").json["id"]
    assert cluster.wait(first)["JobState"] == "COMPLETED"
    assert cluster.wait(bad.json["id"])["JobState"] == "FAILED"
    assert cluster.wait(last)["JobState"] == "CANCELLED"
    assert not (place / "last" / "events.jsonl").exists()
    assert cli("slurm", "status", "last").code == 1


def test_the_time_limit_comes_the_job_goes_on_to_the_same_groups(place: Path, cluster: Cluster, cli: Any) -> None:
    """Field case G03."""
    assert cli(*GEN, "--output", "whole").code == 0
    # far too slow for a minute, until there is a file that says otherwise
    (place / "player.py").write_text(PLAYER.replace("    return", SLOW + "    return"))
    slow = (*GEN, "--workers", "1")
    limits = ("--time", "1m", "--signal-before", "55", "--requeue")
    done = cli("slurm", "submit", "--json", *limits, "--max-requeues", "1", "--", *slow, "--output", "run")
    assert done.code == 0, done.stderr
    job_id = done.json["id"]
    until(lambda: cluster.job(job_id).get("Restarts") == "1")  # SLURM looks at limits every half minute
    assert record(place / "run") | {"code": 138, "requeued": True} == record(place / "run")
    before = len(groups(place / "run"))
    assert 0 < before < 24
    (place / "fast").touch()
    cluster.output("scontrol", "update", f"JobId={job_id}", "TimeLimit=10")
    assert cluster.wait(job_id, 90)["JobState"] == "COMPLETED"
    assert groups(place / "run") == groups(place / "whole")
    assert sorted(path.name for path in (place / "run" / "logs").iterdir()) == ["attempt_1", "attempt_2", "latest"]
    assert record(place / "run")["attempt"] == 2
    output = (place / "run" / f"slurm-{job_id}.out").read_text()
    assert output.count("start main") == 2  # appended, not truncated


def test_serve_starts_servers_for_gen(place: Path, cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for vLLM on two nodes: gen gets the address of both."""
    (place / "bin").mkdir()
    engine = place / "bin" / "vllm"
    engine.write_text(
        f"#!{sys.executable}\nimport os, sys\nw = sys.argv[1:]\n"
        "host, port = w[w.index('--host') + 1], w[w.index('--port') + 1]\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'atropos_authoring.mock_server', '--host', host,"
        " '--port', port, '--flavor', 'vllm', '--model', w[1]])\n"
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    words = ("gen", "./sums.py:Sums", "--model", "org/tiny", "--limit", "8", "--group-size", "1", "--output", "run")
    sizes = ("--nodes", "2", "--gpus-per-node", "2", "--time", "10m", "--start-timeout", "60")
    done = cli("slurm", "submit", "--wait", "--json", "--serve", "vllm", "--tp", "2", *sizes, "--", *words)
    assert done.code == 0, done.stderr + (log(place / "run", "server0") if (place / "run/logs").exists() else "")
    assert [item["name"] for item in done.json["components"]] == ["server0", "server1", "main"]
    assert len({item["node"] for item in done.json["components"][:2]}) == 2
    assert len(groups(place / "run")) == 8
    backend = json.loads((place / "run" / "plan.json").read_text())["backend"]["config"]
    assert len(backend["base_url"]) == 2


def test_logs_are_followed_to_the_end(place: Path, cli: Any) -> None:
    job = cli("slurm", "submit", "--json", "--", *GEN, "--backend.delay-s", "0.2", "--limit", "6", "--output", "run")
    lines = cli("slurm", "logs", "-f", job.json["id"])
    assert lines.code == 0
    assert "6" in lines.stdout
    assert record(place / "run")["code"] == 0


def test_dry_run_asks_sbatch_and_writes_nothing(place: Path, cli: Any) -> None:
    done = cli("slurm", "submit", "--dry-run", "--gpus-per-node", "2", "--time", "2h", "--", *GEN, "--output", "run")
    assert done.code == 0
    assert "#SBATCH --time=0-02:00:00" in done.stdout
    assert "sbatch --parsable" in done.stdout
    assert "to start at" in done.stdout
    assert not (place / "run").exists()
    refused = cli("slurm", "submit", "--dry-run", "--gpus-per-node", "3", "--", *GEN, "--output", "run")
    assert refused.code == 7
    assert "Requested node configuration is not available" in refused.stderr


def test_a_template_and_a_profile_of_ones_own(place: Path, cluster: Cluster, cli: Any) -> None:
    (place / "own.j2").write_text(
        "#!/bin/bash\n{% for d in directives %}#SBATCH {{ d }}\n{% endfor %}"
        "{% for s in setup %}{{ s }}\n{% endfor %}exec {{ command }}\n"
    )
    (place / "atropos.toml").write_text(
        '[slurm]\nprofile = "ci"\n[slurm.profiles.ci]\ntemplate = "own.j2"\npartition = "main"\n'
        'setup = ["export FROM_SETUP=\'a b\'"]\nenv = { FROM_PROFILE = "1,2" }\nsbatch = { comment = "hi there" }\n'
    )
    (place / "sums.py").write_text(
        ENV.replace("range(24)", "range(1 if os.environ['FROM_SETUP'] == 'a b' else 0)").replace(
            "from atropos_cli.sdk", "import os\nfrom atropos_cli.sdk"
        )
    )
    done = cli("slurm", "submit", "--no-check", "--wait", "--json", "--", *GEN, "--output", "run")
    assert done.code == 0, done.stderr
    assert cluster.job(done.json["id"])["Partition"] == "main"
    assert "#SBATCH --comment='hi there'" in (place / "run" / "job.sbatch").read_text()


def test_g18_what_sbatch_refuses_is_said_in_its_own_words(place: Path, cli: Any) -> None:
    done = cli("slurm", "submit", "--wait", "--no-check", "--sbatch", "partition=gpuu", "--", *GEN, "--output", "run")
    assert done.code == 7
    assert "invalid partition specified: gpuu" in done.stderr


def test_g18_a_job_that_fails_at_its_start_is_not_waited_for(place: Path, cli: Any) -> None:
    """Without accounting: this cluster has none."""
    words = ("eval", "./nothing.py:Nothing", "--backend", "scripted")
    done = cli("slurm", "submit", "--wait", "--json", "--no-check", "--", *words)
    assert done.code == 4
    assert done.json["state"] == "failed"
    assert "nothing.py" in cli("slurm", "logs", done.json["id"], "main").stdout


def test_nobody_waits_for_a_job_that_never_starts(place: Path, cluster: Cluster, cli: Any) -> None:
    done = cli("slurm", "submit", "--no-check", "--wait", "--cpus", "99", "--", *GEN, "--output", "run")
    assert done.code == 7
    assert "PartitionConfig" in done.stderr or "not available" in done.stderr
    for job_id in cluster.output("squeue", "-h", "-o", "%A").split():
        cluster.output("scancel", job_id)
