"""A run against several servers when one of them dies, and when one was never there."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .tmux_support import wait_for


@pytest.fixture
def servers() -> Iterator[Callable[[], tuple[subprocess.Popen[str], str]]]:
    """Start model servers as processes: (process, base URL)."""
    started: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "atropos_authoring.mock_server", "--port", "0", "--reply", "Answer: 7"]
        child = subprocess.Popen([*command, "--delay", "0.1"], stdout=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None
        return child, child.stdout.readline().split()[-1]

    yield start
    for child in started:
        child.kill()
        child.wait()


def test_a_server_that_is_killed_costs_no_group(servers: Callable[..., Any], tmp_path: Path) -> None:
    (first, one), (_, two) = servers(), servers()
    run = tmp_path / "run"
    args = ["gen", "arithmetic", "--base-url", one, "--base-url", two, "--limit", "40", "--workers", "4"]
    child = subprocess.Popen(
        [sys.executable, "-m", "atropos_cli", *args, "--output", str(run)], stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: (run / "groups.jsonl").exists() and (run / "groups.jsonl").stat().st_size, "a group")
    first.kill()
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["groups_done"], summary["rollouts_failed"]) == (40, 0)
    assert summary["retries"] > 0  # requests were on their way to it


def test_a_server_that_was_never_there_is_passed_over(
    servers: Callable[..., Any], cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, url = servers()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        monkeypatch.setenv("ATROPOS_BASE_URL", f"{gone},{url}")
        result = cli("gen", "arithmetic", "--limit", "3", "--output", "run", "--json")
    assert result.code == 0, result.stderr
    assert result.json["groups_done"] == 3
