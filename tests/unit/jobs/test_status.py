"""What is said of a job, from what its launcher says and what lies in its folder: a table of both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.job import Component, JobPlan, Resources
from atropos_cli.errors import LaunchError, LauncherSilent
from atropos_cli.jobs.asking import cancel
from atropos_cli.jobs.folder import write_job
from atropos_cli.jobs.follow import log_path
from atropos_cli.jobs.status import view
from atropos_cli.jobs.store import attempts_in, read_submitted, remember
from atropos_cli.ports.launcher import JobSpec, JobStatus, Launcher

SPEC = JobSpec(name="job", run="")


class Told(Launcher):
    """Says what a test tells it to say."""

    name = "told"

    def __init__(self) -> None:
        super().__init__(None)
        self.says: JobStatus | Exception = JobStatus(id="7", state="pending")
        self.cancelled: list[str] = []

    def render(self, job: JobSpec) -> str:
        return ""

    def submit(self, job: JobSpec) -> str:
        return "7"

    def status(self, job_id: str) -> JobStatus:
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        yield from ()

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)


def says(state: str, **more: Any) -> JobStatus:
    return JobStatus.model_validate({"id": "7", "state": state, **more})


def attempt(folder: Path, number: int, code: int | None, **more: Any) -> None:
    """What an attempt leaves behind; code None: it was killed."""
    (folder / "logs" / f"attempt_{number}").mkdir(parents=True)
    (folder / "exit.json").unlink(missing_ok=True)
    if code is not None:
        record = {"attempt": number, "code": code, "reason": "own words", "requeued": False, "restarts": 0, **more}
        (folder / "exit.json").write_text(json.dumps(record))


def submitted(
    folder: Path, launcher: Told, *, requeue: bool = False, identity: dict[str, str] | None = None, job_id: str = "7"
) -> Any:
    main = Component(name="main", role="main", argv=("true",))
    resources = Resources(requeue=requeue)
    write_job(JobPlan(atropos_version="0", name="job", components=(main,), resources=resources), folder)
    launcher.says = says("pending", identity=identity or {})
    remember(folder, job_id, SPEC, launcher, attempts_in(folder))
    return read_submitted(folder)


SILENT = LauncherSilent("no answer")
ABSENT = LaunchError("sbatch is not on the PATH")
Left = tuple[int | None, dict[str, Any]]
DONE: Left = (0, {})
FAILED: Left = (9, {})
STOPPED: Left = (143, {})
KILLED: Left = (None, {})
AGAIN: Left = (138, {"requeued": True})


@pytest.mark.parametrize(
    ("told", "left", "state", "code"),
    [
        # what the launcher says of a job that waits or runs wins
        (says("pending"), STOPPED, "pending", None),
        (says("pending"), DONE, "pending", None),
        (says("running"), FAILED, "running", None),
        (says("running"), AGAIN, "running", None),
        (says("pending", restarts=1), FAILED, "pending", None),
        # how it ended, the folder knows better
        (says("finished"), DONE, "finished", 0),
        (says("failed", exit_code=1), FAILED, "failed", 9),
        (says("cancelled", exit_code=143), STOPPED, "cancelled", 143),
        (says("failed", exit_code=15), KILLED, "failed", 15),
        # an attempt before the launcher started the job again says nothing
        (says("failed", exit_code=2, restarts=1), DONE, "failed", 2),
        (says("cancelled", restarts=2), (0, {"restarts": 1}), "cancelled", None),
        (says("finished", restarts=1), (0, {"restarts": 1}), "finished", 0),
        # asked, and not known
        (says("unknown"), DONE, "finished", 0),
        (says("unknown"), KILLED, "lost", None),
        (says("unknown"), AGAIN, "lost", None),
        # not asked, or no answer
        (SILENT, DONE, "finished", 0),
        (SILENT, FAILED, "failed", 9),
        (SILENT, KILLED, "unknown", None),
        (SILENT, AGAIN, "unknown", None),
        (ABSENT, DONE, "finished", 0),
        (ABSENT, KILLED, "unknown", None),
        (says("unknown", answered=False, reason="on another machine"), KILLED, "unknown", None),
    ],
)
def test_an_attempt_of_the_job(
    told: JobStatus | Exception, left: Left, state: str, code: int | None, tmp_path: Path
) -> None:
    launcher = Told()
    job = submitted(tmp_path, launcher)
    attempt(tmp_path, 1, left[0], **left[1])
    launcher.says = told
    found = view(job, launcher)
    assert (found["state"], found["exit_code"]) == (state, code)
    assert found.get("silent", False) == (told is SILENT)


@pytest.mark.parametrize("left", [DONE, FAILED, STOPPED, KILLED, AGAIN])
@pytest.mark.parametrize(
    ("told", "state"),
    [
        (says("pending"), "pending"),
        (says("running"), "running"),
        (says("failed", exit_code=3), "failed"),
        (says("cancelled"), "cancelled"),
        (says("finished"), "failed"),  # it ended before its command was started
        (says("unknown"), "lost"),
        (SILENT, "unknown"),
        (ABSENT, "unknown"),
    ],
)
def test_what_an_earlier_job_left_counts_for_nothing(
    told: JobStatus | Exception, state: str, left: Left, tmp_path: Path
) -> None:
    attempt(tmp_path, 1, left[0], **left[1])
    launcher = Told()
    job = submitted(tmp_path, launcher)
    launcher.says = told
    found = view(job, launcher)
    assert (found["state"], found["exit_code"]) == (state, 3 if state == "failed" and told.exit_code else None)  # type: ignore[union-attr]
    assert "own words" not in str(found["reason"])


def test_a_stopped_attempt_may_be_in_the_queue_again(tmp_path: Path) -> None:
    """With requeue, and nobody to ask: it is not called failed."""
    launcher = Told()
    job = submitted(tmp_path, launcher, requeue=True)
    attempt(tmp_path, 1, 143)
    launcher.says = SILENT
    assert view(job, launcher)["state"] == "unknown"
    attempt(tmp_path, 2, 9)
    assert view(job, launcher)["state"] == "failed"


@pytest.mark.parametrize("key", ["name", "submitted", "folder"])
def test_another_job_has_the_number(key: str, tmp_path: Path) -> None:
    launcher = Told()
    job = submitted(tmp_path, launcher, identity={"name": "a", "submitted": "b", "folder": "c", "cluster": "one"})
    attempt(tmp_path, 1, None)
    same = {"name": "a", "submitted": "b", "folder": "c", "cluster": "one"}
    launcher.says = says("running", identity={**same, key: "else"})
    assert view(job, launcher)["state"] == "lost"
    with pytest.raises(LaunchError, match="another job now"):
        cancel(job, launcher)
    launcher.says = says("running", identity={**same, key: ""})  # what it does not say is not compared
    assert view(job, launcher)["state"] == "running"
    cancel(job, launcher)
    assert launcher.cancelled == ["7"]


def test_another_cluster_was_asked(tmp_path: Path) -> None:
    launcher = Told()
    job = submitted(tmp_path, launcher, identity={"cluster": "one"})
    attempt(tmp_path, 1, None)
    for state in ("unknown", "running"):
        launcher.says = says(state, identity={"cluster": "two"})
        found = view(job, launcher)
        assert (found["state"], "cluster 'one'" in found["reason"]) == ("unknown", True)
        with pytest.raises(LaunchError, match="was not cancelled"):
            cancel(job, launcher)
    assert launcher.cancelled == []


def test_the_end_of_a_later_job_is_not_that_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three jobs in one folder, each asked for by its own id, also after the launcher has forgotten them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder, launcher = tmp_path / "run", Told()
    jobs = []
    for number, code in ((1, 9), (2, 143), (3, 0)):
        jobs.append(submitted(folder, launcher, job_id=f"{number}"))
        attempt(folder, number, code)
        (folder / f"logs/attempt_{number}/main.log").write_text(f"words of {number}")
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps({"attempt": number, "event": "exit", "code": code, "reason": f"end {number}"}) + "\n")
    for says_of_it in (says("unknown"), SILENT, says("failed")):
        launcher.says = says_of_it
        found = [view(job, launcher) for job in jobs]
        assert [(item["state"], item["exit_code"]) for item in found] == [
            ("failed", 9),
            ("failed", 143),
            ("finished", 0),
        ]
        assert [item["attempt"] for item in found] == [1, 2, 3]
        assert found[0]["reason"] == "end 1"
        assert ["folder_taken_by" in item for item in found] == [True, True, False]
    assert [log_path(job, "main", None).parent.name for job in jobs] == ["attempt_1", "attempt_2", "latest"]
    (folder / "events.jsonl").unlink()
    launcher.says = says("unknown")
    assert view(jobs[0], launcher)["state"] == "lost"


def test_a_job_is_waiting_in_the_folder_of_one_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    launcher = Told()
    first = submitted(tmp_path / "run", launcher)
    attempt(tmp_path / "run", 1, 9)
    second = submitted(tmp_path / "run", launcher, job_id="8")
    assert view(second, launcher)["state"] == "pending"
    launcher.says = says("failed")
    assert (view(first, launcher)["state"], view(first, launcher)["exit_code"]) == ("failed", 9)


@pytest.mark.parametrize(
    ("told", "component"),
    [
        (says("running"), "running"),
        (says("pending", restarts=1), "not started"),
        (says("failed", reason="NODE_FAIL"), "killed"),
        (says("unknown"), "killed"),
        (SILENT, "running"),
    ],
)
def test_a_component_without_an_exit_code(told: JobStatus | Exception, component: str, tmp_path: Path) -> None:
    """Its node was cut off: it does not run any more once its job is over, or waits again."""
    launcher = Told()
    job = submitted(tmp_path, launcher, requeue=True)
    attempt(tmp_path, 1, None)
    (tmp_path / "endpoints").mkdir()
    (tmp_path / "endpoints/main.json").write_text(json.dumps({"node": "n1", "host": "127.0.0.1", "ports": {}}))
    launcher.says = told
    assert [item["state"] for item in view(job, launcher)["components"]] == [component]
