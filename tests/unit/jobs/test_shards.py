"""Shards of a run: which tasks each owns, and the merge by whichever finishes last."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.job import Component, JobPlan, Resources
from atropos_cli.domain.plan import Execution, parse_shard
from atropos_cli.errors import LaunchError
from atropos_cli.jobs import shards
from atropos_cli.jobs.folder import read_job, write_job
from atropos_cli.jobs.shards import enter_shard, merge_when_complete
from atropos_cli.rollout.tasks import Shard

GEN = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "7", "--limit", "12", "--group-size", "2")


@pytest.mark.parametrize("count", [1, 2, 7, 64])
def test_every_task_is_in_one_shard(count: int) -> None:
    parts = [Shard(f"{index}/{count}") for index in range(count)]
    assert all(sum(part.owns(index) for part in parts) == 1 for index in range(2000))
    assert sum(part.size(2000) or 0 for part in parts) == 2000
    assert min(part.size(2000) or 0 for part in parts) > 2000 / count / 3  # even enough


def test_no_shard_is_everything() -> None:
    assert all(Shard(None).owns(index) for index in range(100))
    assert Shard(None).size(None) is None
    assert Shard("0/2").size(None) is None


@pytest.mark.parametrize("text", ["", "1", "4/4", "5/4", "-1/4", "a/b", "1/0", "1/2/3", "0x1/4"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(ValueError, match="no shard"):
        parse_shard(text)
    with pytest.raises(ValueError, match="no shard"):
        Execution(shard=text)


def array(folder: Path, count: int) -> JobPlan:
    plan = JobPlan(
        atropos_version="0",
        name="test",
        components=(Component(name="main", role="main", argv=("true",)),),
        resources=Resources(array=count),
    )
    write_job(plan, folder)
    return plan


def lines(run: Path) -> list[str]:
    return sorted((run / "groups.jsonl").read_text().splitlines())


def test_shards_together_are_the_whole_run(tmp_path: Path, cli: Callable[..., Any]) -> None:
    assert cli(*GEN, "--output", "whole").code == 0
    folder = tmp_path / "parts"
    plan = array(folder, 3)
    for index in range(3):
        own, place = enter_shard(plan, folder, {"SLURM_ARRAY_TASK_ID": str(index)})
        assert (own.shard, own.resources.array) == ((index, 3), None)
        assert read_job(place / "job.json") == own
        assert cli(*GEN, "--shard", f"{index}/3", "--output", str(place), "--resume").code == 0
        said = merge_when_complete(place)
        assert ("merged 12 groups of 3 shards" in said) == (index == 2), said
    assert "merged already" in merge_when_complete(folder / "shards" / "0")
    strip = [_stable(line) for line in lines(folder)]
    assert strip == [_stable(line) for line in lines(Path("whole"))]
    merged = json.loads((folder / "plan.json").read_text())
    assert merged["execution"]["shard"] is None
    assert merged["digest"] == json.loads(Path("whole/plan.json").read_text())["digest"]
    assert json.loads((folder / "summary.json").read_text())["state"] == "finished"
    assert sorted(path.name for path in folder.iterdir()) == [
        "groups.jsonl", "job.json", "log.jsonl", "merge.lock", "plan.json", "shards", "summary.json",
        "totals.json",
    ]  # fmt: skip


def _stable(line: str) -> Any:
    group = json.loads(line)
    return group["group_id"], [(item["messages"], item["reward"]) for item in group["rollouts"]]


def test_a_shard_goes_on_where_it_was(tmp_path: Path, cli: Callable[..., Any]) -> None:
    words = (*GEN, "--shard", "1/2", "--output", "run")
    assert cli(*words).code == 0
    before = lines(Path("run"))
    again = cli(*words, "--resume", "--json")
    assert again.code == 0
    assert again.json["groups_resumed"] == again.json["groups_total"] == len(before) > 0
    assert lines(Path("run")) == before


def test_a_shard_without_tasks_is_finished(tmp_path: Path, cli: Callable[..., Any]) -> None:
    empty = next(index for index in range(8) if not Shard(f"{index}/8").owns(0))
    words = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "7", "--limit", "1")
    folder = tmp_path / "parts"
    plan = array(folder, 8)
    for index in range(8):
        _, place = enter_shard(plan, folder, {"SLURM_ARRAY_TASK_ID": str(index)})
        done = cli(*words, "--shard", f"{index}/8", "--output", str(place), "--resume", "--json")
        assert (done.code, done.json["state"]) == (0, "finished")
        assert done.json["groups_total"] == (0 if index == empty or not Shard(f"{index}/8").owns(0) else 1)
    assert "merged 1 groups of 8 shards" in merge_when_complete(folder / "shards" / "7")


def test_an_array_needs_an_index(tmp_path: Path) -> None:
    plan = array(tmp_path, 2)
    with pytest.raises(LaunchError, match="no array task"):
        enter_shard(plan, tmp_path, {})
    with pytest.raises(LaunchError, match="array task 2 of a plan with 2 shards"):
        enter_shard(plan, tmp_path, {"SLURM_ARRAY_TASK_ID": "2"})


def test_the_merge_step_reports_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array(tmp_path, 2)
    assert shards.main([str(tmp_path)]) == 6
    assert "no shard of an array job" in capsys.readouterr().err
