"""For the tests of plugins: contract suites to subclass, helpers, and (as a pytest plugin) fixtures.

    from atropos_authoring import EnvironmentContract

    class TestMaze(EnvironmentContract):
        environment = Maze
        replies = ("north", "take the key")

pytest loads this package in every test session, so names are imported when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atropos_authoring.backends import BackendContract
    from atropos_authoring.environments import EnvironmentContract
    from atropos_authoring.helpers import STRANGE_REPLIES, make_rollout, run_environment
    from atropos_authoring.launchers import LauncherContract
    from atropos_authoring.rewards import RewardContract
    from atropos_authoring.trainers import TrainerContract, tiny_model

__all__ = [
    "STRANGE_REPLIES",
    "BackendContract",
    "EnvironmentContract",
    "LauncherContract",
    "RewardContract",
    "TrainerContract",
    "make_rollout",
    "run_environment",
    "tiny_model",
]

_HOMES = {
    "BackendContract": "backends",
    "EnvironmentContract": "environments",
    "LauncherContract": "launchers",
    "RewardContract": "rewards",
    "STRANGE_REPLIES": "helpers",
    "TrainerContract": "trainers",
    "make_rollout": "helpers",
    "run_environment": "helpers",
    "tiny_model": "trainers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
