"""The tools of MCP servers. The manifest that atropos loads."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_toolsets() -> Iterable[ComponentSpec]:
    """The source of tools `mcp`."""
    return [
        ComponentSpec(
            "toolset",
            "mcp",
            "atropos_mcp.source:McpTools",
            summary="Tools of an MCP server: mcp:COMMAND, or mcp:URL.",
            requires=("mcp",),
        )
    ]
