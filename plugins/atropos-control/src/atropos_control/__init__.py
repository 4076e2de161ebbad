"""Environments of Gymnasium under the engine of atropos: `atropos gen gymnasium:FrozenLake-v1`.

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """gymnasium:ID, for every id that Gymnasium knows here."""
    yield ComponentSpec(
        "environment",
        "gymnasium",
        "atropos_control.environment:environment_class",
        "An environment of Gymnasium, described in words: gymnasium:FrozenLake-v1.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The return of an episode."""
    yield ComponentSpec(
        "reward",
        "gymnasium_return",
        "atropos_control.rewards:gymnasium_return",
        "The sum of the rewards that the environment gave in the episode.",
    )
