"""Fixtures: one game cache for all tests, and an open environment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.engine.runtime import Runtime
from atropos_textworld.environment import TextWorldEnvironment
from atropos_textworld.games.spec import GameSpec

from atropos_cli.sdk import Message, Task, assistant


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled games are made once for the whole test run."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def temporary_folders(cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's cache out of it, and make what is left in the temporary folder visible."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


Opener = Callable[..., Any]


@pytest_asyncio.fixture
async def opened() -> AsyncIterator[Opener]:
    """`await opened(workers=2, difficulty="easy")` is an open environment; closed after the test."""
    environments: list[TextWorldEnvironment] = []

    async def make(workers: int = 1, **options: Any) -> TextWorldEnvironment:
        environment = TextWorldEnvironment(TextWorldConfig(**options))
        environments.append(environment)
        await environment.open(workers=workers)
        return environment

    yield make
    for environment in environments:
        await environment.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtime(cache_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    """Processes shared by a module's tests, which must run in the module's loop."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache_folder))
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("shared")))
        runtime = await Runtime.open(workers=4, processes=2, cache_bytes=2**30, step_deadline=5.0)
    yield runtime
    await runtime.close()


@pytest.fixture
def shared(runtime: Runtime) -> Callable[..., TextWorldEnvironment]:
    """`shared(max_steps=3)` is an environment with these options that uses the module's processes."""

    def make(**options: Any) -> TextWorldEnvironment:
        environment = TextWorldEnvironment(TextWorldConfig(**options))
        environment._runtime = runtime
        return environment

    return make


def task_of(kind: str, difficulty: str = "easy", seed: int = 7, split: str = "train") -> Task:
    """A task for one given game."""
    spec = GameSpec(kind, difficulty, seed, split)
    return Task(id=spec.id, info=dict(spec.as_json()))


def says(text: str) -> Message:
    """A reply."""
    return assistant(text)


@pytest.fixture
def make_task() -> Callable[..., Task]:
    """`task_of` as a fixture, because test modules cannot import conftest."""
    return task_of
