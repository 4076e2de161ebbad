"""What several files of these tests need and is dear to make: once for all of them, whichever process they run in."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist and a wheel of every distribution, as `.ci/release` makes them."""
    if not (ROOT / ".ci" / "release").exists():
        pytest.skip("not a whole checkout")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    out, half = shared / "dist", shared / "dist.half"
    with (shared / "dist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            venv = Path(sys.executable).parents[1]
            command = ["bash", str(ROOT / ".ci" / "release"), str(half)]
            environment = {**os.environ, "ATROPOS_TEST_VENV": str(venv)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            half.rename(out)
    return out
