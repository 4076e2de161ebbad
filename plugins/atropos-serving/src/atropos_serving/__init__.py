"""Servers of SGLang and vLLM. This module is what atropos loads; it names what is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atropos_cli.sdk import hookimpl

if TYPE_CHECKING:
    from atropos_cli.sdk.serving import Serve, Served


@hookimpl
def atropos_plan_servers(serve: Serve, nodes: int, gpus_per_node: int) -> Served | None:
    """The inference servers beside a command, for --serve."""
    if serve.engine == "trajectories":
        return None
    from atropos_serving.beside import plan

    return plan(serve, nodes, gpus_per_node)
