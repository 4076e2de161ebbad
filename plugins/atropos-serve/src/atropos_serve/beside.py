"""`--serve trajectories`: the trajectory server as a component of a job, its queue in the job's folder."""

from __future__ import annotations

import sys

from atropos_cli.sdk.launchers import Component
from atropos_cli.sdk.serving import Serve, Served


def plan(serve: Serve, nodes: int) -> Served:
    """One server on the first node. It is for that node alone, unless the job has others or --host says so."""
    host = "127.0.0.1" if nodes == 1 else "0.0.0.0"  # noqa: S104
    words = (sys.executable, "-P", "-m", "atropos_cli", "serve", "{run}/trajectories", "--port", "{port}")
    component = Component(
        name="trajectories",
        role="service",
        argv=(*words, "--host", host, *serve.extra),
        gpus=(),
        ports=("http",),
        health="/status",
        key_env="ATROPOS_SERVE__TOKEN",
    )
    return Served((component,), (component.name,))
