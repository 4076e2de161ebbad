"""Environments of verifiers, unmodified, under the engine of atropos: `atropos gen verifiers:NAME`.

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """verifiers:NAME for one that was added."""
    yield ComponentSpec(
        "environment",
        "verifiers",
        "atropos_verifiers.environment:family",
        "An environment of verifiers, in a process and a Python of its own: verifiers:NAME.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The reward that an environment of verifiers gave."""
    yield ComponentSpec(
        "reward",
        "verifiers_reward",
        "atropos_verifiers.rewards:verifiers_reward",
        "The reward that the environment of verifiers gave to the rollout when it was made.",
    )
