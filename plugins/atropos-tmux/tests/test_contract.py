"""The launcher keeps the contract of launchers, on a tmux server of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from atropos_authoring import LauncherContract
from atropos_tmux.launcher import TmuxConfig, TmuxLauncher

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
