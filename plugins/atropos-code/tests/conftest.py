"""One sandbox for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from atropos_code.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as box:
        yield box
