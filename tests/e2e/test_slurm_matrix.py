"""A part of the matrix of `slurm_matrix.py` and a few of the kills of `slurm_kills.py`, as tests.

The whole: python tests/e2e/slurm_matrix.py OUT.md, and python tests/benchmarks/slurm_kills.py --kills 100
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import slurm_cells
import slurm_cluster
import slurm_kills
import slurm_matrix
from slurm_cluster import Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm_cluster.missing() is not None, reason=f"no SLURM: {slurm_cluster.missing()}"),
]


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster.running(tmp_path_factory.mktemp("slurm"), cpus=24, preempt=True) as found:
        yield found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    slurm_cells.set_up(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize("condition", ["node_down", "node_down_again", "controller_killed"])
def test_what_is_said_is_true(cluster: Cluster, place: Path, condition: str) -> None:
    """gen, train, a server, an array and a pipeline at once; status, --wait, logs -f and exit codes."""
    slurm_matrix.loaded_once()
    found = slurm_matrix.observed(slurm_matrix.Conditions(cluster, place), condition)
    assert {cell.kind: wrong for cell, wrong in found} == {kind: [] for kind in slurm_cells.KINDS}


def test_a_few_random_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lost, doubled, left running or untrue."""
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with slurm_cluster.running(tmp_path / "c", cpus=2, gpus=0) as cluster:
        field = slurm_kills.Field(cluster, tmp_path / "place", 2, seed=3)
        assert slurm_kills.run(field, kills=6, limit=900) == []
    assert sum(field.kills.values()) == 6
