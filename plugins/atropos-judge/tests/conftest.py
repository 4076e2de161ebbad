"""Makes `judge_support` importable for the tests beside this file, and gives its fixtures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from atropos_authoring.mock_server import MockServer
from in_process import Result, command_line
from judge_support import ENVIRONMENT


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
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """The command line in this process."""
    yield from command_line(capfd)
