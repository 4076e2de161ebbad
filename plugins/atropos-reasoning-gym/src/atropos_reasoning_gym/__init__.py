"""reasoning-gym as an environment of atropos.

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """reasoning-gym."""
    yield ComponentSpec(
        "environment",
        "reasoning-gym",
        "atropos_reasoning_gym.environment:ReasoningGymEnvironment",
        "Endless verifiable puzzles and problems of the package reasoning-gym, all families or some.",
        requires=("reasoning-gym",),
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The package's own score, also by name."""
    yield ComponentSpec(
        "reward",
        "reasoning_gym",
        "atropos_reasoning_gym.scoring:reasoning_gym",
        "The score that reasoning-gym gives to the text in <answer> tags.",
        requires=("reasoning-gym",),
    )


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Whether the package is there, and how far its scorers are shut in."""
    try:
        version = importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError:
        return [("reasoning-gym", "warn", "not installed: pip install reasoning-gym")]
    from atropos_reasoning_gym.scoring import describe_isolation

    return [("reasoning-gym", "ok", version), describe_isolation()]
