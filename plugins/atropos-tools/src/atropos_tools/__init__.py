"""Tasks that need tools. This module is what atropos loads; it names what is here."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """The environment `tools-demo`."""
    return [
        ComponentSpec(
            "environment",
            "tools-demo",
            "atropos_tools.environment:ToolsDemo",
            summary="Tasks for a calculator, an SQLite database and files, with checked answers.",
        )
    ]


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """Its reward, also by name."""
    target = "atropos_tools.environment:solved"
    return [ComponentSpec("reward", "tools_demo_solved", target, summary="1 for the right number or file, else 0.")]
