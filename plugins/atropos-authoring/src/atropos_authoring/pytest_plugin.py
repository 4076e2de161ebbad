"""The pytest plugin that atropos-cli brings: fixtures for the tests of plugins.

It is loaded wherever atropos-cli is installed, also in test suites that have nothing to do with it:
it imports nothing but pytest, changes nothing, and all its fixtures begin with `atropos_`.
"""

from __future__ import annotations

import os
import shutil
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


@pytest.fixture(scope="session")
def atropos_known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's cache after the first command, which reads the manifests of the installed plugins for a second."""
    from atropos_cli.sdk.authoring import load_registry

    home = tmp_path_factory.mktemp("atropos-known")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ATROPOS_DISABLE_PLUGINS", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(home))
        load_registry()
    return home


@pytest.fixture
def atropos_clean(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, atropos_known: Path
) -> Path:
    """An empty folder as home and working directory, and no ATROPOS_* variable: nothing of this machine leaks in.

    The cache is elsewhere, and knows the installed plugins.
    """
    for name in list(os.environ):
        if name.startswith("ATROPOS_"):
            monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    cache = tmp_path_factory.mktemp("cache")
    shutil.copytree(atropos_known, cache, dirs_exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
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
