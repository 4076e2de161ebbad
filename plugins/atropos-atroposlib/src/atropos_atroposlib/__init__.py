"""Environments of atroposlib, unmodified, under the engine of atropos: `atropos gen atroposlib:FILE.py:CLASS`.

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """atroposlib:FILE.py:CLASS, and atroposlib:NAME for one that was added."""
    yield ComponentSpec(
        "environment",
        "atroposlib",
        "atropos_atroposlib.environment:family",
        "An environment class of atroposlib, in a process and a Python of its own: atroposlib:FILE.py:CLASS.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The score that an environment of atroposlib gave."""
    yield ComponentSpec(
        "reward",
        "atroposlib_score",
        "atropos_atroposlib.rewards:atroposlib_score",
        "The score that the environment of atroposlib gave to the rollout when it was made.",
    )
