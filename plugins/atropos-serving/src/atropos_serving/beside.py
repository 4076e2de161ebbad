"""`--serve ENGINE`: servers beside the command of a job."""

from __future__ import annotations

from atropos_cli.sdk.serving import Platform, Serve, Served, detect_platform
from atropos_serving.prepare import look_up
from atropos_serving.program import find_program
from atropos_serving.servers import ServerRequest, plan_servers
from atropos_serving.settings import LaunchSettings


def plan(serve: Serve, nodes: int, gpus_per_node: int) -> Served:
    """The servers for nodes like those of the job. Raises UsageError, LaunchError for what cannot be."""
    assert serve.engine != "trajectories"  # atropos-serve answers for it
    model = serve.model or ""
    servers = plan_servers(
        ServerRequest(
            engine=serve.engine,
            model=model,
            settings=LaunchSettings(tp=serve.tp, dp=serve.dp),
            extra=serve.extra,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            # The GPUs are those of the compute nodes, which may be of any kind; without GPUs it is a CPU job.
            platform=Platform("gpu") if gpus_per_node else Platform("cpu", memory=detect_platform().memory),
            info=look_up(model, offline=False, ask_hub=False),
            program=find_program(serve.engine, serve.python) if serve.python else None,
        )
    )
    return Served(servers.components, tuple(item.name for item in servers.heads), servers.notes)
