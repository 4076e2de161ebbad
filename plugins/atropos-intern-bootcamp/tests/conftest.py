"""Where the bootcamps of the tests are."""

from __future__ import annotations

from pathlib import Path

import pytest

CAMPS = str(Path(__file__).parent / "camps")


@pytest.fixture
def camps() -> str:
    """The folder that holds the package sample_bootcamps."""
    return CAMPS
