"""The trajectory server: environments push scored groups, trainers pull batches. Names here are what atropos loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atropos_cli.sdk import hookimpl

if TYPE_CHECKING:
    from atropos_cli.sdk.serving import Serve, Served


@hookimpl
def atropos_plan_servers(serve: Serve, nodes: int, gpus_per_node: int) -> Served | None:
    """The server beside a command, for --serve trajectories."""
    if serve.engine != "trajectories":
        return None
    from atropos_serve.beside import plan

    return plan(serve, nodes)
