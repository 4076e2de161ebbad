"""An empty home and working folder for each test, and the command line in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from in_process import Result, command_line, known_plugins_file


@pytest.fixture(scope="session")
def known_plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of the installed plugins, as a user has it after the first command."""
    return known_plugins_file(tmp_path_factory.mktemp("known"))


@pytest.fixture(autouse=True)
def isolation(atropos_clean: Path, known_plugins: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder; none of the launcher's variables that a training looks at."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    cache = atropos_clean / "cache"
    (cache / "atropos").mkdir(parents=True)
    shutil.copy2(known_plugins, cache / "atropos")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return atropos_clean


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """cli("train", "sft") -> what it did. The plugins are read anew at each call."""
    yield from command_line(capfd)
