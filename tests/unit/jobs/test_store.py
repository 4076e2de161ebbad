"""The list of jobs: damaged records, clocks that differ, numbers that several jobs have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.job import Component, JobPlan
from atropos_cli.errors import DataError, LaunchError, UsageError
from atropos_cli.jobs.asking import cancel, the_one_here
from atropos_cli.jobs.prepare import Prepared, spec_of, submit
from atropos_cli.jobs.status import view
from atropos_cli.jobs.store import (
    SUBMITTED,
    candidates,
    find,
    index_path,
    read_submitted,
    submitted_jobs,
    successor,
)

from .test_status import SILENT, Told, attempt, says, submitted

GARBAGE = [
    b"",
    b"{",
    b"\0" * 40,
    b"\xff\xfe",
    b"[1]",
    b'"text"',
    b"{}",
    b'{"id": ""}',
    b'{"id": "7", "identity": [1]}',
    b'{"id": "7", "earlier": ["x"]}',
    b'{"id": {"a": 1}}',
]


@pytest.fixture(autouse=True)
def _list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("text", GARBAGE)
def test_a_damaged_record_is_that_of_the_list(text: bytes, tmp_path: Path) -> None:
    launcher, folder = Told(), tmp_path / "run"
    job = submitted(folder, launcher)
    (folder / SUBMITTED).write_bytes(text)
    assert read_submitted(folder) == find(str(folder)) == find("7") == job
    assert view(job, launcher)["state"] == "pending"
    index_path().unlink()
    with pytest.raises(DataError, match="is damaged"):
        find(str(folder))


@pytest.mark.parametrize(
    "text", [*GARBAGE, b'{"id": "1", "folder": 5}', b'{"id": "1", "folder": "' + b"x" * 5000 + b'"}']
)
def test_a_damaged_line_hides_no_other_job(text: bytes, tmp_path: Path) -> None:
    launcher = Told()
    submitted(tmp_path / "one", launcher, job_id="1")
    with index_path().open("ab") as file:
        file.write(text)  # cut off: no newline
    submitted(tmp_path / "two", launcher, job_id="2")
    assert [job.folder.name for job in submitted_jobs()] == ["one", "two"]


def test_records_of_ends_and_addresses_that_are_damaged(tmp_path: Path) -> None:
    launcher = Told()
    job = submitted(tmp_path, launcher)
    attempt(tmp_path, 1, 0)
    launcher.says = says("failed", exit_code=3)
    for text in ('{"code": "zero"}', '{"code": null}', "{}", "[]", '{"attempt": 1, "co', '{"code": true}'):
        (tmp_path / "exit.json").write_text(text)
        assert (view(job, launcher)["state"], view(job, launcher)["exit_code"]) == ("failed", 3)
    (tmp_path / "exit.json").write_text('{"code": 9, "attempt": "x", "restarts": "y"}')
    assert view(job, launcher)["exit_code"] == 9
    launcher.says = says("running")
    for folder in ("endpoints", "status"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "main.json").write_text('{"other": 1, "ports": 5}')
    assert view(job, launcher)["components"][0]["ports"] == {}
    (tmp_path / "job.json").write_text('{"components": [')
    assert view(job, launcher)["components"] == []


def test_the_order_of_jobs_is_not_that_of_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second login node is an hour behind: its job is the later one all the same."""
    launcher, folder, clock = Told(), tmp_path / "run", [10_000.0]
    monkeypatch.setattr("atropos_cli.jobs.store.time.time", lambda: clock[0])
    first = submitted(folder, launcher, job_id="1")
    attempt(folder, 1, 9)
    clock[0] -= 3600
    second = submitted(folder, launcher, job_id="2")
    attempt(folder, 2, 0)
    launcher.says = says("unknown")
    later = successor(first)
    assert later is not None
    assert (later.id, successor(second)) == ("2", None)
    assert view(second, launcher)["state"] == "finished"
    found = view(first, launcher)
    assert (found["state"], found["attempt"], found["folder_taken_by"]) == ("lost", 1, "2")


def test_one_number_on_two_clusters(tmp_path: Path) -> None:
    """Asked for by number: the job of the cluster that is asked here, the newest only where that has none."""
    launcher = Told()
    mine, there = {"cluster": "mine", "submitted": "b"}, {"cluster": "other", "submitted": "c"}
    here = submitted(tmp_path / "here", launcher, identity=mine)
    away = submitted(tmp_path / "away", launcher, identity=there)
    launcher.says = says("running", identity=mine)
    assert the_one_here(candidates("7"), launcher) == here
    launcher.says = says("unknown", identity={"cluster": "mine"})  # forgotten: still the one of this cluster
    assert the_one_here(candidates("7"), launcher) == here
    launcher.says = says("running", identity=there)
    assert the_one_here(candidates("7"), launcher) == away
    for answer in (says("running", identity={"cluster": "third"}), SILENT):
        launcher.says = answer
        assert the_one_here(candidates("7"), launcher) == away
    assert the_one_here(candidates(str(tmp_path / "here")), launcher) == here


def test_a_number_whose_folder_was_deleted(tmp_path: Path) -> None:
    """What the list knows of it still separates it from another job of that number."""
    launcher = Told()
    ours = {"cluster": "one", "submitted": "then"}
    job = submitted(tmp_path / "gone", launcher, identity=ours)
    for path in job.folder.iterdir():
        path.unlink()
    job.folder.rmdir()
    with pytest.raises(UsageError):
        find("7")
    found = find("7", "told")
    for identity, words in (({**ours, "submitted": "now"}, "another job now"), ({"cluster": "two"}, "cluster 'one'")):
        launcher.says = says("running", identity=identity)
        shown = view(found, launcher)
        assert (shown["state"], words in shown["reason"]) == ("unknown", True)
        with pytest.raises(LaunchError, match="was not cancelled"):
            cancel(found, launcher)
    launcher.says = says("running", identity=ours)
    assert view(found, launcher)["state"] == "running"
    cancel(found, launcher)
    assert launcher.cancelled == ["7"]
    assert view(find("8", "told"), launcher)["state"] == "running"  # never heard of: as the launcher says


def test_a_job_that_cannot_be_noted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full once the job has been submitted."""

    class Filling(Told):
        def submit(self, job: Any) -> str:
            (tmp_path / "run" / SUBMITTED).mkdir()
            return "7"

    plan = JobPlan(atropos_version="0", name="job", components=(Component(name="main", role="main", argv=("true",)),))
    folder = tmp_path / "run"
    with pytest.raises(LaunchError, match="job 7 was submitted to told, and cannot be noted"):
        submit(Prepared(plan, spec_of(plan, folder), folder), Filling())


def test_another_users_folder(tmp_path: Path) -> None:
    """A name that cannot even be looked at is not the folder of a job."""
    with pytest.raises(UsageError, match="there is no job"):
        find("x" * 5000)
    launcher = Told()
    submitted(tmp_path / "run", launcher)
    lines = index_path().read_text()
    record = {**json.loads(lines), "id": "5", "folder": "/" + "y" * 5000}
    index_path().write_text(json.dumps(record) + "\n" + lines)
    assert [job.id for job in submitted_jobs()] == ["7"]
