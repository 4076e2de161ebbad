"""One sandbox for all tests, and the shared material next to the repository."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from atropos_code.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as box:
        yield box


@pytest.fixture(scope="session")
def shared() -> Callable[..., Path]:
    """A function that finds a file of ../shared, or skips the test when it is not there."""

    def find(*parts: str) -> Path:
        path = Path(__file__).resolve().parents[3].parent.joinpath("shared", *parts)
        if not path.exists():
            pytest.skip(f"../shared/{'/'.join(parts)} is not there")
        return path

    return find
