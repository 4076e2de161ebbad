"""Ray over two nodes that are this machine: the first waits for the second, the second leaves when the run is over."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

from atropos_cli.sdk.distributed import Nodes, Ray


def test_two_nodes_meet_and_part(verl_python: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    (tmp_path / "over").write_text(f"{address}  ")  # an earlier run's
    head, other = (Ray(Nodes(2, number, address, f"{address}  "), verl_python, tmp_path, env) for number in (0, 1))
    follower = threading.Thread(target=other.follow, args=(lambda: False,))
    follower.start()
    try:
        assert head.lead(lambda: False) == {"RAY_ADDRESS": address}
        assert follower.is_alive()
    finally:
        head.close()
    follower.join(120)
    assert not follower.is_alive()
