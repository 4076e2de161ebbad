"""Environments whose model calls tools.

class Sums(ToolEnvironment):
    name = "sums"
    tools = (add,)

And sources of tools for any environment, for --tools NAME:TARGET: a ToolSource.
"""

from __future__ import annotations

from atropos_cli.ports.toolsource import ToolResult, ToolsConfig, ToolSession, ToolSource
from atropos_cli.tools.environment import (
    ToolConfig,
    ToolEnvironment,
    ToolEpisode,
    introduced,
    results_as_user,
    unreadable,
)
from atropos_cli.tools.schema import Tool, tool_of
from atropos_cli.tools.toolbox import EndEpisode, Limits, Outcome, Toolbox, ToolError

__all__ = [
    "EndEpisode",
    "Limits",
    "Outcome",
    "Tool",
    "ToolConfig",
    "ToolEnvironment",
    "ToolEpisode",
    "ToolError",
    "ToolResult",
    "ToolSession",
    "ToolSource",
    "Toolbox",
    "ToolsConfig",
    "introduced",
    "results_as_user",
    "tool_of",
    "unreadable",
]
