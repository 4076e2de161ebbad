"""Makes `judge_support` importable for the tests beside this file, and gives its fixtures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from atropos_authoring.mock_server import MockServer
from judge_support import ENVIRONMENT, Done


@pytest.fixture(autouse=True)
def clean(atropos_clean: Path) -> Path:
    """An empty home and working folder for each test, with an environment in it."""
    (atropos_clean / "tasks.py").write_text(ENVIRONMENT)
    return atropos_clean


@pytest.fixture
def server() -> Iterator[MockServer]:
    """The judge's server; each test says what it answers."""
    with MockServer(models=("judge-model",)) as running:
        yield running


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Done]]:
    """The command line in this process."""
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
