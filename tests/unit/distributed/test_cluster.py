"""The nodes of a run meet and part, with small programs in the places of Ray and its Python."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from atropos_cli.distributed.cluster import Nodes, Ray
from atropos_cli.domain.refs import ComponentRef
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import ConfigError, TrainerError

ADDRESS = "127.0.0.1:6379"
MARK = f"{ADDRESS} 7 0"


@pytest.fixture
def python(tmp_path: Path) -> str:
    """`ray start` makes a node known and stays; `python` counts them."""
    (tmp_path / "bin").mkdir()
    scripts = {"ray": 'echo "$@" >>NODES; test -e BROKEN && exit 5; sleep 600', "python": "cat NODES | wc -l"}
    for name, text in scripts.items():
        path = tmp_path / "bin" / name
        path.write_text(
            "#!/bin/sh\n" + text.replace("NODES", str(tmp_path / "n")).replace("BROKEN", f"{tmp_path}/broken")
        )
        path.chmod(0o755)
    return str(tmp_path / "bin" / "python")


def test_two_nodes_meet_and_part(python: str, tmp_path: Path) -> None:
    (tmp_path / "over").write_text(MARK)  # of an earlier run
    head, other = (Ray(Nodes(2, number, ADDRESS, MARK), python, tmp_path, os.environ) for number in (0, 1))
    follower = threading.Thread(target=other.follow, args=(lambda: False,))
    follower.start()
    try:
        assert head.lead(lambda: False) == {"RAY_ADDRESS": ADDRESS}
        assert follower.is_alive()
    finally:
        head.close()
    follower.join(60)
    assert not follower.is_alive()
    words = sorted((tmp_path / "n").read_text().splitlines())
    assert words[0].startswith(f"start --address={ADDRESS}")
    assert words[1].startswith("start --head --port=6379 --node-ip-address=127.0.0.1")


def test_a_head_that_does_not_start(python: str, tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    head = Ray(Nodes(2, 0, ADDRESS, MARK), python, tmp_path, os.environ)
    with pytest.raises(TrainerError, match="Ray's head ended with code 5"):
        head.lead(lambda: False)
    head.close()


def test_one_node_needs_no_ray_of_ours(python: str, tmp_path: Path) -> None:
    head = Ray(Nodes(), python, tmp_path, os.environ)
    assert head.lead(lambda: False) == {}
    head.close()
    assert not (tmp_path / "n").exists()


def test_nodes_by_the_variables_of_a_job() -> None:
    plan = TrainPlan(atropos_version="0", method="grpo", learns="groups", trainer=ComponentRef(name="verl"), model="m")
    assert Nodes.here(plan, {}) == Nodes()
    env = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "99", "WORLD_SIZE": "2", "RANK": "1"}
    found = Nodes.here(plan, env)
    assert (found.count, found.number, found.address) == (2, 1, "n1:99")
    with pytest.raises(ConfigError, match="starts the processes of its GPUs itself"):
        Nodes.here(plan, {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"})
