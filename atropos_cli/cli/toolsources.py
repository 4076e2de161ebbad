"""Options of sources of tools on the command line: `--tools mcp:COMMAND` brings `--tool.mcp.OPTION`.

Which sources there are is found before the arguments are parsed: those that --tools, its variable or a file names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.errors import AtroposError

if TYPE_CHECKING:
    from atropos_cli.config.resolve import Resolved
    from atropos_cli.config.sources import Bucket
    from atropos_cli.console.session import Session
    from atropos_cli.domain.plan import Plan
    from atropos_cli.plugins.registry import Registry


def tools_buckets(registry: Registry, args: Sequence[str], *, lenient: bool = False) -> list[Bucket]:
    """One option group for each source. lenient: for help; a source that cannot be loaded is ignored."""
    from atropos_cli.cli.habits import peek_values
    from atropos_cli.config.buckets import settings_bucket, tools_bucket
    from atropos_cli.config.commands import said_of

    configs = peek_values(args, "config")
    said = peek_values(args, "tools") or said_of(settings_bucket(), "tools", Path(configs[-1]) if configs else None)
    found: dict[str, Bucket] = {}
    installed = frozenset(item.name for item in registry.registrations("toolset")) if said else frozenset()
    for name in dict.fromkeys(text.partition(":")[0] for text in said):
        try:
            registration = registry.find("toolset", name)
            found[registration.name] = tools_bucket(registration.name, registration.load().Config, installed)
        except AtroposError:
            if not lenient:
                raise
    return list(found.values())


def tell_tools(plan: Plan, session: Session) -> None:
    """Say which tools the sources of a plan offer now; they are started for it, and ended. Raises AtroposError."""
    from atropos_cli.rollout.toolsources import listed_tools

    for label, tools in asyncio.run(listed_tools(plan, session.registry)):
        session.out.note(f"tools of {label}:")
        for tool in tools:
            function: Any = tool["function"]
            takes = ", ".join(function["parameters"].get("properties", {}))
            session.out.note(f"  {function['name']}({takes}): {' '.join(function['description'].split())[:100]}")


def tools_options(resolved: Resolved) -> dict[str, dict[str, Any]]:
    """The options given for each source, by its name."""
    from atropos_cli.config.buckets import TOOLS

    return {bucket.names[0]: resolved.given[bucket.name] for bucket in resolved.buckets if bucket.table == TOOLS}
