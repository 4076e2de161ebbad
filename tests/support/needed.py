"""Packages that tests need in the programs they start, not in their own process."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def need(*packages: str) -> None:
    """Skip where one is not installed. Imports none: torch and trl take seconds, once in each process of a suite."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}", allow_module_level=True)
