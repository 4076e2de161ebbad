"""Records of tmux jobs that were cut off or are of something else: a state all the same, and no other job hidden."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from atropos_tmux.launcher import TmuxConfig, TmuxLauncher
from atropos_tmux.pane import birth

from atropos_cli.errors import LaunchError

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
DAMAGED = (b"", b"{", b"[]", b"5", b"\xff", b"{}", b'{"code": "x", "host": 5}')


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TmuxLauncher:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return TmuxLauncher(TmuxConfig(socket="atropos-records"))


def noted(launcher: TmuxLauncher, name: str, folder: Path, **records: Any) -> None:
    """A job whose folder holds these records."""
    folder.mkdir(exist_ok=True)
    launcher.state_folder.mkdir(parents=True, exist_ok=True)
    (launcher.state_folder / f"{name}.json").write_text(json.dumps({"folder": str(folder)}))
    for record, content in records.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / f"{record}.json").write_bytes(data)


@pytest.mark.parametrize("text", DAMAGED)
def test_each_record(text: bytes, launcher: TmuxLauncher, tmp_path: Path) -> None:
    me = {"pid": os.getpid(), "born": birth(os.getpid()), "host": socket.gethostname()}
    noted(launcher, "torn", tmp_path / "torn", running=text, exit=text, start=text)
    noted(launcher, "lives", tmp_path / "lives", running=me, start={"cwd": str(tmp_path), "gpus": ["GPU-1"]})
    noted(launcher, "ended", tmp_path / "ended", running=me, exit={"code": 3, "stopped": False, "signal": None})
    assert [launcher.status(name).state for name in ("torn", "lives", "ended")] == ["failed", "running", "failed"]
    assert launcher.working_in() == [("lives", tmp_path)]
    assert launcher._claimed() == {"GPU-1": "lives"}
    (launcher.state_folder / "torn.json").write_bytes(text)
    assert sorted(name for name, _ in launcher.jobs()) == ["ended", "lives"]
    assert launcher.status("torn").state == "unknown"
    with pytest.raises(LaunchError, match="no tmux job 'torn'"):
        launcher.cancel("torn")
