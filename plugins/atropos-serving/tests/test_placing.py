"""What the commands that start servers are asked about those that run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Result, command_line


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process."""
    yield from command_line(capfd)


@pytest.mark.parametrize("command", ["launch-vllm", "launch-sglang", "launch-skyrl"])
def test_a_dry_run_stops_nothing(cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    from atropos_serving.commands import servers

    stopped: list[Any] = []
    monkeypatch.setattr(servers, "stop_server", lambda session, model, **more: stopped.append(model) or 0)
    found = cli(command, "--stop", "--dry-run", "--name", "mine")
    assert found.code == 2
    assert "--stop stops" in found.stderr
    assert not stopped
    assert cli(command, "--stop", "--name", "mine").code == 0
    assert stopped == ["mine"]
