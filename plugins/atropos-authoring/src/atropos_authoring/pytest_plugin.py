"""The pytest plugin that atropos-cli brings: fixtures for the tests of plugins.

It is loaded wherever atropos-cli is installed, also in test suites that have nothing to do with it:
it imports nothing but pytest, changes nothing, and all its fixtures begin with `atropos_`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from atropos_cli.sdk import ScoredGroup
    from atropos_cli.sdk.engine import Registry

pytest.register_assert_rewrite(
    "atropos_authoring.backends",
    "atropos_authoring.environments",
    "atropos_authoring.helpers",
    "atropos_authoring.rewards",
)


@pytest.fixture
def atropos_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as home and working directory, and no ATROPOS_* variable: nothing of this machine leaks in."""
    for name in list(os.environ):
        if name.startswith("ATROPOS_"):
            monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def atropos_registry() -> Iterator[Registry]:
    """The installed plugins, loaded afresh; broken ones are in its `failures`."""
    from atropos_cli.sdk.authoring import get_registry, reset_registry

    reset_registry()
    yield get_registry()
    reset_registry()


@pytest.fixture
def atropos_run(tmp_path: Path) -> Callable[..., list[ScoredGroup]]:
    """`atropos_run(MyEnv, replies=["4"], limit=2)`: run an environment in the real engine; see run_environment."""
    from atropos_authoring.helpers import run_environment

    runs = 0

    def run(*args: Any, **kwargs: Any) -> list[ScoredGroup]:
        nonlocal runs
        runs += 1
        return run_environment(*args, **{"folder": tmp_path / f"run-{runs}", **kwargs})

    return run
