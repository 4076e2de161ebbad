"""Tasks of inspect_ai, unmodified, under the engine of atropos: `atropos gen inspect:PACKAGE/TASK`.

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """inspect:PACKAGE/TASK, inspect:FILE.py@TASK, and inspect:NAME for one that was added."""
    yield ComponentSpec(
        "environment",
        "inspect",
        "atropos_inspect.environment:family",
        "A task of inspect_ai with its solver and scorers: inspect:PACKAGE/TASK or inspect:FILE.py@TASK.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The score that a task of inspect_ai gave."""
    yield ComponentSpec(
        "reward",
        "inspect_score",
        "atropos_inspect.rewards:inspect_score",
        "The value of the first scorer of the inspect_ai task, given when the rollout was made.",
    )
