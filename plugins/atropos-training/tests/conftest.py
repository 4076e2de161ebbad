"""An empty home and working folder for each test, and the command line in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from in_process import Result, command_line


@pytest.fixture(autouse=True)
def isolation(atropos_clean: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; none of the launcher's variables that a training looks at."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    return atropos_clean


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """cli("train", "sft") -> what it did. The plugins are read anew at each call."""
    yield from command_line(capfd)
