"""The program in process, and the Python with SkyRL that ATROPOS_TEST_SKYRL_TRAINER names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chat_model import chat_model
from in_process import Result, command_line


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    return chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def cli(atropos_clean: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Result]]:
    """Call the program in process: cli("train", "grpo", ...) -> Result."""
    yield from command_line(capfd)


@pytest.fixture
def skyrl_python() -> str:
    """A Python with SkyRL 0.3 or 0.4, what its trainer imports, and torch for CPUs; vLLM may be missing."""
    python = os.environ.get("ATROPOS_TEST_SKYRL_TRAINER")
    if not python:
        pytest.skip("ATROPOS_TEST_SKYRL_TRAINER names no Python with SkyRL's trainer")
    return python
