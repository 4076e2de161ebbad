"""The tests that need vLLM, in an environment that has it: ATROPOS_TEST_VLLM names its Python.

It must hold atropos-cli, this plugin, pytest and pytest-asyncio, and for the training atropos-trl[train].
"""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

PYTHON = os.environ.get("ATROPOS_TEST_VLLM", "")
ROOT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here: its tests run by themselves"),
    pytest.mark.skipif(not PYTHON, reason="ATROPOS_TEST_VLLM is not set"),
]


@pytest.mark.parametrize("file", ["test_engine.py", "test_training.py"])
def test_with_a_real_vllm(file: str) -> None:
    if subprocess.run([PYTHON, "-c", "import atropos_vllm, pytest_asyncio"], capture_output=True).returncode:
        pytest.skip(f"atropos-vllm or pytest-asyncio is not installed for {PYTHON}")
    command = [PYTHON, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), str(Path(__file__).with_name(file))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-6000:]
    assert "skipped" not in done.stdout.splitlines()[-1], done.stdout[-2000:]
