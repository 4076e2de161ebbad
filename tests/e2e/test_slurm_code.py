"""Jobs of a real SLURM that run in a copy of the code, behind set-up lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from atropos_cli.domain.job import Component

from .slurm_cluster import Cluster
from .slurm_support import (  # noqa: F401
    ENV,
    GEN,
    cluster_fixture,
    groups,
    log,
    main,
    place_fixture,
    record,
    slurm,
    start,
)

pytestmark = slurm


def commit(place: Path) -> None:
    (place / ".gitignore").write_text("state/\nruns/\n*.bin\n")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "sums.py", "player.py", ".gitignore"), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *words], check=True, capture_output=True, cwd=place)


def test_edits_do_not_change_a_queued_job(place: Path, cluster: Cluster, cli: Any) -> None:
    commit(place)
    (place / "weights.bin").write_bytes(b"x")
    words = ["--json", "--sync", ".", "--setup", "export RIGHT=1", "--time", "10m"]
    play = ["--", *GEN, "--limit", "2", "--output", "a run"]
    job = cli("slurm", "submit", "--sbatch", "hold", *words, *play)
    assert job.code == 0, job.stderr
    assert "code: 3 files" in job.stderr
    assert "weights.bin" in job.stderr
    (place / "sums.py").write_text(ENV.replace("float(", "-float("))
    refused = cli("slurm", "submit", *words, *play)
    assert (refused.code, "which is pending" in refused.stderr) == (7, True)
    assert (place / "a run/code/sums.py").read_text() == ENV
    cluster.output("scontrol", "release", job.json["id"])
    assert cluster.wait(job.json["id"], 90)["JobState"] == "COMPLETED"
    found = cli("slurm", "status", "a run", "--json").json
    assert (found["state"], found["code"]["changed"], found["code"]["files"]) == ("finished", False, 3)
    assert len(found["code"]["commit"]) == 40
    assert found["code"]["copy_at"] == str(place / "a run/code")
    assert {reward for group in groups(place / "a run").values() for _, reward in group} == {1.0}
    assert json.loads((place / "a run/plan.json").read_text())["environment"]["name"].startswith(str(place / "a run"))


def test_a_line_that_fails_is_named_and_nothing_starts(place: Path, cli: Any) -> None:
    words = ["--setup", "export A=1", "--setup", "cd /no/where"]
    done = cli("slurm", "submit", "--wait", "--json", *words, "--", *GEN, "--limit", "1", "--output", "bad")
    assert done.code == 1, done.stderr
    found = cli("slurm", "status", "bad", "--json").json
    assert (found["state"], found["exit_code"]) == ("failed", 1)
    assert "the set-up ended with code 1, at: cd /no/where" in found["reason"]
    assert [item["state"] for item in found["components"]] == ["not started"]
    assert "/no/where" in (place / "bad/logs/latest/setup.log").read_text()
    assert not (place / "bad/groups.jsonl").exists()


def test_what_a_set_up_line_starts_is_gone_behind_the_job(place: Path, cli: Any) -> None:
    """And a script that it sources, which turns the checks off, hides no failure of the next line."""
    (place / "activate").write_text("set +e\nexport A=1\nfalse\ntrue\n")
    words = [
        "--setup",
        f"source '{place / 'activate'}'",
        "--setup",
        "(setsid sleep 60.74 &)",
        "--setup",
        "head -c 9000000 /dev/zero",
    ]
    play = ["--", *GEN, "--limit", "1"]
    done = cli("slurm", "submit", "--wait", *words, *play, "--output", "good")
    assert done.code == 0, done.stderr
    assert subprocess.run(["pgrep", "-f", "sleep 60.74"], capture_output=True).returncode == 1
    assert (place / "good/logs/latest/setup.log").stat().st_size == 9_000_000
    assert (
        cli("slurm", "submit", "--wait", *words[:2], "--setup", "cat /no/where | sort", *play, "--output", "bad").code
        == 1
    )
    assert "with code 1, at: cat /no/where | sort" in cli("slurm", "status", "bad", "--json").json["reason"]


def test_variables_reach_the_programs_of_all_nodes(place: Path, cluster: Cluster) -> None:
    show = "import os; print('GIVEN', os.environ.get('GIVEN'), os.environ.get('OWN'))"
    there = Component(name="there", role="task", node=1, argv=(sys.executable, "-c", show))
    job = start(
        place / "job", main(sys.executable, "-c", show), there, setup=('export GIVEN="a b"', "OWN=x"), env={"Y": "1"}
    )
    assert cluster.wait(job, 60)["JobState"] == "COMPLETED"
    for name in ("main", "there"):
        assert "GIVEN a b None" in log(place / "job", name)


def test_each_shard_of_an_array_is_set_up(place: Path, cli: Any) -> None:
    commit(place)
    marks = place / "marks"
    words = ["--array", "2", "--sync", ".", "--setup", f"echo $SLURM_ARRAY_TASK_ID >> '{marks}'"]
    done = cli("slurm", "submit", "--wait", "--json", *words, "--", *GEN, "--limit", "4", "--output", "parts")
    assert done.code == 0, done.stderr
    assert sorted(marks.read_text().split()) == ["0", "1"]
    assert len(groups(place / "parts")) == 4
    assert done.json["code"]["files"] == 3


def test_a_dry_run_shows_the_code_and_copies_nothing(place: Path, cli: Any) -> None:
    commit(place)
    shown = cli("slurm", "submit", "--dry-run", "--json", "--sync", ".", "--", *GEN, "--output", "later")
    assert shown.code == 0, shown.stderr
    assert (shown.json["plan"]["code"]["files"], len(shown.json["plan"]["code"]["commit"])) == (3, 40)
    assert not (place / "later").exists()


def test_what_git_ignores_is_missed_before_the_job_is_submitted(place: Path, cli: Any) -> None:
    commit(place)
    (place / ".gitignore").write_text("state/\nsums.py\n")
    subprocess.run(["git", "rm", "-q", "--cached", "sums.py"], check=True, cwd=place)
    refused = cli("slurm", "submit", "--sync", ".", "--", *GEN, "--output", "missing")
    assert refused.code == 3
    assert "./sums.py is not in the copy" in refused.stderr
    assert "this is the command in the copy" in refused.stderr
    assert "by absolute paths" in refused.stderr
    assert cli("slurm", "list", "--json").json == []
