"""Servers beside a command, planned by the plugin that knows the engine."""

from __future__ import annotations

from atropos_cli.errors import AtroposError, ComponentNotFound
from atropos_cli.plugins.firstanswer import first_answer
from atropos_cli.plugins.firstparty import pip_install
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.serving import TRAJECTORIES, Serve, Served


def plan_servers(registry: Registry, serve: Serve, nodes: int, gpus_per_node: int) -> Served:
    """The servers, from the first plugin that knows the engine.

    Raises ComponentNotFound when none does, PluginError for the fault of a plugin, and what the plugin finds wrong.
    """
    asked = {"serve": serve, "nodes": nodes, "gpus_per_node": gpus_per_node}
    served = first_answer(registry, "atropos_plan_servers", asked, Served, "plan servers", AtroposError)
    if served is not None:
        return served
    package = "atropos-serve" if serve.engine == TRAJECTORIES else "atropos-serving"
    raise ComponentNotFound(
        f"--serve {serve.engine} needs {package}, which is not installed", hint=pip_install(package)
    )
