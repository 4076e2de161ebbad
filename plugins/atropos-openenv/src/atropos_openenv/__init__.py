"""OpenEnv servers as environments: `atropos gen openenv:URL`. Speaks their protocol; needs no package of theirs.

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """openenv:URL."""
    yield ComponentSpec(
        "environment",
        "openenv",
        "atropos_openenv.environment:family",
        "The environment of an OpenEnv server: openenv:URL.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """What a server said of the steps of an episode."""
    yield ComponentSpec(
        "reward",
        "openenv_return",
        "atropos_openenv.rewards:openenv_return",
        "The sum of the rewards that an OpenEnv server gave for the steps of the episode.",
    )
