"""What every launcher must do, as tests. Subclass LauncherContract and define `make`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.authoring import check_component, join_shards, load_registry, write_shards
from atropos_cli.sdk.engine import GenSettings, build_plan
from atropos_cli.sdk.jobs import spec_of, write_job
from atropos_cli.sdk.launchers import Component, JobPlan, JobSpec, JobStatus, Launcher, LaunchError

DIGITS = f"{Path(__file__).with_name('digits.py')}:Digits"
_SHOW = "import os; print('here', os.getcwd(), flush=True); print('mark', os.environ['CONTRACT_MARK'], flush=True)"
_WAIT = "import time; print('started', flush=True); time.sleep(600)"
_OVER = ("finished", "failed", "cancelled")


class LauncherContract:
    """Define `make`; it may skip the tests where there is no cluster. patience: seconds until a job must be over.

    A launcher is asked anew each time, as another process would: what it must remember of a job is on the disk.
    """

    patience: ClassVar[float] = 60.0

    def make(self) -> Launcher:
        """A launcher."""
        raise AssertionError("define make(self) -> Launcher")

    def test_the_class_is_complete(self) -> None:
        cls = type(self.make())
        check_component("launcher", cls.name, cls, origin="the tests")

    def test_rendering_changes_nothing(self, tmp_path: Path) -> None:
        job = JobSpec(name="seen", run=str(tmp_path / "run"), cwd=str(tmp_path), resources=self._shards(1))
        assert self.make().render(job) == self.make().render(job)
        assert not (tmp_path / "run").exists()

    def test_a_job_runs_where_it_should_and_is_seen_to_end(self, tmp_path: Path) -> None:
        """Odd characters in a folder reach the job as they are."""
        place = tmp_path / "it's a $HOME run"
        place.mkdir()
        job = self._job(place, _SHOW, mark="a 'b' $c")
        launcher = self.make()
        job_id = launcher.submit(job)
        status = self._over(job_id)
        text = "\n".join([*self.make().logs(job_id), self._log(place)])
        assert status.state == "finished", text
        assert status.exit_code in (0, None)
        assert f"here {place}" in text
        assert "mark a 'b' $c" in text

    def test_the_exit_code_of_a_job_that_fails(self, tmp_path: Path) -> None:
        status = self._over(self.make().submit(self._job(tmp_path, "raise SystemExit(3)")))
        assert (status.state, status.exit_code) == ("failed", 3)

    def test_a_job_that_is_cancelled_is_over(self, tmp_path: Path) -> None:
        launcher = self.make()
        job_id = launcher.submit(self._job(tmp_path, _WAIT))
        self._until(lambda: "started" in self._log(tmp_path), "the job's program did not start")
        assert self.make().status(job_id).state == "running"
        self.make().cancel(job_id)
        assert self._over(job_id).state == "cancelled"
        self.make().cancel(job_id)  # once more is no error
        assert json.loads((tmp_path / "exit.json").read_text())["code"] != 0

    def test_a_job_that_nobody_knows(self, tmp_path: Path) -> None:
        try:
            status = self.make().status(str(tmp_path / "nothing"))
        except LaunchError:
            return
        assert status.state == "unknown"

    def test_dependencies_are_kept_or_refused(self, tmp_path: Path) -> None:
        launcher = self.make()
        if launcher.capabilities.dependencies:
            (tmp_path / "first").mkdir()
            first = launcher.submit(self._job(tmp_path / "first", "raise SystemExit(1)"))
            (tmp_path / "next").mkdir()
            then = launcher.submit(self._job(tmp_path / "next", _SHOW, mark="x").replace(after=(first,)))
            assert self._over(then).state in ("cancelled", "failed")
            assert "mark" not in self._log(tmp_path / "next")
        else:
            with pytest.raises(LaunchError):
                launcher.submit(self._job(tmp_path, _SHOW, mark="x").replace(after=("1",)))

    def test_the_shards_of_a_run(self, tmp_path: Path) -> None:
        launcher = self.make()
        if not launcher.capabilities.shards:
            pytest.skip("it carries out no shards")
        settings = GenSettings(
            backend="scripted", backend_options={"replies": ["7"]}, limit=6, group_size=2, logprobs="off"
        )
        run = tmp_path / "run"
        write_shards(build_plan(settings, DIGITS, {}, load_registry()), run, 2, resume=False)
        job_id = launcher.submit(JobSpec(name="parts", run=str(run), cwd=str(tmp_path), resources=self._shards(2)))
        self._until(lambda: launcher.status(job_id).state in _OVER, "the shards did not end")
        assert launcher.status(job_id).state == "finished", "\n".join(launcher.logs(job_id))
        assert join_shards(run, 2).groups_done == 6

    def _shards(self, count: int) -> JsonDict:
        return {"shards": count} if self.make().capabilities.shards else {}

    def _job(self, place: Path, code: str, mark: str = "") -> JobSpec:
        """A job of one program, in its folder."""
        if not self.make().capabilities.submit:
            pytest.skip("it starts no jobs that go on by themselves")
        main = Component(name="main", role="main", argv=(sys.executable, "-c", code))
        plan = JobPlan(atropos_version="0", name="contract", components=(main,), cwd=str(place), grace=5, drain=5)
        plan = self.make().adapt(plan, place)
        write_job(plan, place)
        job: JobSpec = spec_of(plan, place).replace(env={"CONTRACT_MARK": mark})
        return job

    def _log(self, place: Path) -> str:
        path = place / "logs" / "latest" / "main.log"
        return path.read_text() if path.exists() else ""

    def _over(self, job_id: str) -> JobStatus:
        self._until(lambda: self.make().status(job_id).state in _OVER, "the job did not end")
        return self.make().status(job_id)

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + self.patience
        while not done():
            assert time.monotonic() < deadline, what
            time.sleep(0.1)
