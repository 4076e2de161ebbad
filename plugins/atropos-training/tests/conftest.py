"""An empty home and working folder for each test, and the command line in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Done:
    """What one call of the program did."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


@pytest.fixture(scope="session")
def known_plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of the installed plugins, as a user has it after the first command."""
    from atropos_cli.plugins.discovery import load_registry

    home = tmp_path_factory.mktemp("known")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        load_registry()
    return home / "atropos" / "plugins.json"


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
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Done]]:
    """cli("train", "sft") -> what it did. The plugins are read anew at each call."""
    from atropos_cli.cli import app
    from atropos_cli.plugins.discovery import reset_registry

    def call(*args: Any) -> Done:
        reset_registry()
        capfd.readouterr()
        code = app.run([str(arg) for arg in args])
        out = capfd.readouterr()
        return Done(code, out.out, out.err)

    yield call
    reset_registry()
