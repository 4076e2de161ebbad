"""The launcher keeps the contract of launchers, on a tmux server of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from atropos_authoring import LauncherContract
from atropos_tmux.launcher import TmuxConfig, TmuxLauncher

from atropos_cli.errors import LaunchError
from atropos_cli.jobs.asking import cancel
from atropos_cli.jobs.status import view
from atropos_cli.jobs.store import read_submitted, remember

SOCKET = "atropos-contract"


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
class TestContract(LauncherContract):
    @pytest.fixture(autouse=True)
    def _server(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        state: Path = tmp_path_factory.mktemp("state")
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        yield
        subprocess.run(["tmux", "-L", SOCKET, "kill-server"], capture_output=True, check=False)

    def make(self) -> TmuxLauncher:
        return TmuxLauncher(TmuxConfig(socket=SOCKET, grace=20))

    def test_a_later_job_of_the_same_name_is_another(self, tmp_path: Path) -> None:
        """The name is the id: what was submitted under it before must not stop the job that has it now."""
        launcher = self.make()
        jobs = []
        for place in (tmp_path / "first", tmp_path / "second"):
            place.mkdir()
            spec = self._job(place, "import time; time.sleep(0 if 'first' in __import__('os').getcwd() else 600)")
            job_id = launcher.submit(spec)
            remember(place, job_id, spec, launcher, (0,))
            jobs.append(read_submitted(place))
            if not jobs[1:]:
                self._over(job_id)
        assert jobs[0].id == jobs[1].id
        with pytest.raises(LaunchError, match="another job now"):
            cancel(jobs[0], self.make())
        assert view(jobs[0], self.make())["state"] == "finished"
        assert view(jobs[1], self.make())["state"] == "running"
        cancel(jobs[1], self.make())
