"""Servers beside a command, planned by the plugin that knows the engine."""

from __future__ import annotations

from atropos_cli.errors import AtroposError, ComponentNotFound, PluginError
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.plugins.firstparty import pip_install
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.serving import Serve, Served
from atropos_cli.streams import stdout_to_stderr


def plan_servers(registry: Registry, serve: Serve, nodes: int, gpus_per_node: int) -> Served:
    """The servers, from the first plugin that knows the engine.

    Raises ComponentNotFound when none does, PluginError for the fault of a plugin, and what the plugin finds wrong.
    """
    asked = {"serve": serve, "nodes": nodes, "gpus_per_node": gpus_per_node}
    for plugin, hook in registry.hooks("atropos_plan_servers"):
        try:
            with stdout_to_stderr():
                served = hook.call(asked)
            if served is not None and not isinstance(served, Served):
                raise TypeError(f"atropos_plan_servers gave {type(served).__name__}, not a Served")
        except AtroposError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"plugin {plugin.entry_point!r} ({plugin.dist}) cannot plan servers: {describe_error(error)}"
            ) from error
        if served is not None:
            return served
    raise ComponentNotFound(
        f"--serve {serve.engine} needs atropos-serving, which is not installed", hint=pip_install("atropos-serving")
    )
