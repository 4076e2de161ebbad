"""A part of the matrix of `slurm_matrix.py` and a few of the kills of `slurm_kills.py`, as tests.

The whole: python tests/e2e/slurm_matrix.py OUT.md, and python tests/benchmarks/slurm_kills.py --kills 100
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import slurm_cluster
import slurm_kills

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm_cluster.missing() is not None, reason=f"no SLURM: {slurm_cluster.missing()}"),
]


def test_a_few_random_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lost, doubled, left running or untrue."""
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with slurm_cluster.running(tmp_path / "c", cpus=2, gpus=0) as cluster:
        field = slurm_kills.Field(cluster, tmp_path / "place", 2, seed=3)
        assert slurm_kills.run(field, kills=6, limit=900) == []
    assert sum(field.kills.values()) == 6
