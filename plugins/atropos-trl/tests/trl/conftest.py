"""The tiny model and its environment's file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

from trl_support import ENVIRONMENT, make_tiny


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny model."""
    pytest.importorskip("torch")
    pytest.importorskip("trl")
    return make_tiny(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def env_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a file with the environments Letters, Flat and TwoTurns."""
    path = tmp_path_factory.mktemp("env") / "letters_env.py"
    path.write_text(ENVIRONMENT, encoding="utf-8")
    return str(path)
