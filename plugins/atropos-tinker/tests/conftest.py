"""A small model, an environment for it, and a server that trains it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

from tinker_support import ENVIRONMENT, make_small


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small model."""
    for name in ("torch", "transformers", "peft", "tinker"):
        pytest.importorskip(name)
    return make_small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a file with the environments Letters and Flat."""
    path = tmp_path_factory.mktemp("env") / "letters_env.py"
    path.write_text(ENVIRONMENT, encoding="utf-8")
    return str(path)


@pytest.fixture
def server(small: Path, tmp_path: Path) -> Iterator[object]:
    """A server of the Tinker API on the small model."""
    from tinker_server import TinkerServer

    found = TinkerServer(small, tmp_path / "server").start()
    yield found
    found.stop()
