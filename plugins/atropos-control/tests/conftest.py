"""Gives the tests the command line in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from in_process import Result, command_line


@pytest.fixture(autouse=True)
def clean(atropos_clean: Path) -> Path:
    """An empty home and working folder for each test."""
    return atropos_clean


@pytest.fixture(autouse=True)
def modules_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules beside the tests can be imported by name, as gymnasium:MODULE:ID does."""
    monkeypatch.syspath_prepend(Path(__file__).parent)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """The command line in this process."""
    yield from command_line(capfd)
